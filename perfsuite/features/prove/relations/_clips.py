"""Clips of gradients that change nothing of an update: they come after it, or find no gradient."""

from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from perfsuite.rank.norms import local, norm_of
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.torch_hooks import replace_clips

FEWEST = 3  # calls of a line, each of which is in vain


class Clips:
    """Watches torch's functions that clip."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        self.torch, self.script = torch, script
        self._inside = False  # one function calls another
        self._updated: set[int] = set()  # parameters whose gradient an optimizer has used since the last backward
        self._calls: Counter[str] = Counter()  # by the user's line
        self._late: Counter[str] = Counter()
        self._empty: Counter[str] = Counter()
        replace_clips(torch, self._clipping)

    def goes_backward(self) -> None:
        """Gradients are new."""
        self._updated.clear()

    def updates(self, optimizer: Any) -> None:
        """An optimizer uses the gradients that it has."""
        self._updated |= {id(one) for group in optimizer.param_groups for one in group["params"]}

    def in_vain(self) -> tuple[str, str]:
        """The kind and the line of clips of which each was in vain; empty if there is none."""
        for kind, counts in (("late", self._late), ("empty", self._empty)):
            for line, count in counts.items():
                if count >= FEWEST and count == self._calls[line]:
                    return kind, line
        return "", ""

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        def clipping(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not self.script.watched.is_here:
                return clip(parameters, *args, **kwargs)
            parameters = [parameters] if isinstance(parameters, self.torch.Tensor) else list(parameters)
            with_gradient = [one for one in parameters if one.grad is not None]
            late = bool(with_gradient) and all(id(one) in self._updated for one in with_gradient)
            before = self._norms(with_gradient) if late else []
            self._inside = True
            try:
                result = clip(parameters, *args, **kwargs)
            finally:
                self._inside = False
            line = self.script.line()
            self._calls[line] += 1
            self._empty[line] += not with_gradient
            self._late[line] += late and before != self._norms(with_gradient)
            return result

        return clipping

    def _norms(self, parameters: Iterable[Any]) -> list[float]:
        return [norm_of(local(one.grad)) for one in parameters]
