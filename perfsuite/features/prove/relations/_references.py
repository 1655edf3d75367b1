"""Models that a script calls and does not train, as a teacher or the reference of a policy."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perfsuite.features.prove.relations._dropouts import watch_dropouts
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.probes import ProvedScript, digest
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module

FEWEST = 3  # calls
AT_DROPOUT = 4  # of the arguments of scaled_dot_product_attention


class References:
    """Which of them drop values at random, though nothing is trained by it. A teacher that follows the model may."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        self._script = script
        self._found: dict[int, tuple[Module, str, str, int]] = {}  # with a digest, a line, and how many calls dropped
        self._drops: bool | None = None  # in the call that runs; None if none does
        watch_dropouts(torch, self._drop)
        replace(torch.nn.functional, "scaled_dot_product_attention", self._attending)

    def called(self, model: Module, call: Callable[[], Any]) -> Any:
        """A call of a model that is not trained."""
        if not model.training or next(model.parameters(), None) is None:
            return call()
        self._drops = False
        try:
            return call()
        finally:
            if self._drops:
                before = self._found.get(id(model)) or (model, _digest(model), self._script.line(), 0)
                self._found[id(model)] = (*before[:3], before[3] + 1)
            self._drops = None

    def dropping(self) -> tuple[list[str], str]:
        """Their classes and the user's line: of those that were called often enough, and stay as they were."""
        stays = [one for one in self._found.values() if one[3] >= FEWEST and _digest(one[0]) == one[1]]
        return [type(inner_model(one[0])).__name__ for one in stays], next((one[2] for one in stays), "")

    def _drop(self, name: str) -> None:
        if self._drops is not None:
            self._drops = True

    def _attending(self, attend: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(attend)
        def attending(*args: Any, **kwargs: Any) -> Any:
            if self._drops is not None:
                self._drops |= bool(kwargs.get("dropout_p") or (len(args) > AT_DROPOUT and args[AT_DROPOUT]))
            return attend(*args, **kwargs)

        return attending


def _digest(model: Module) -> str:
    return " ".join(digest(one) for one in model.parameters())
