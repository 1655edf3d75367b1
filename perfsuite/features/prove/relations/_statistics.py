"""What a model computes with that depends on the whole batch: BatchNorm, and buffers that each forward changes."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from perfsuite.rank.script.probes import ProvedScript, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module

WHOLE = ("DistributedDataParallel",)
BATCH_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
FEWEST = 2  # forwards that change a buffer: one alone may fill a table


class Statistics:
    """Of the training forwards of a script."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._changes: Counter[str] = Counter()

    @contextlib.contextmanager
    def during(self, model: Module) -> Iterator[None]:
        """A training forward of the model, which may change its buffers."""
        before = _buffers(model)
        yield
        after = _buffers(model)
        self._changes.update(name for name in before if after.get(name) != before[name])

    def of(self, modules: Iterable[Module]) -> str:
        """The class of a BatchNorm that keeps no statistics, or a buffer that forwards change; or else empty."""
        norms = tuple(getattr(self._torch.nn, name) for name in BATCH_NORMS)
        own = (one for one in modules if isinstance(one, norms) and one.training and one.running_mean is None)
        found = next((type(one).__name__ for one in own), "")
        return found or next((name for name, count in self._changes.items() if count >= FEWEST), "")


def without_batch_statistics(torch: Any, script: ProvedScript) -> None:
    """BatchNorm computes with its running statistics, and leaves them: those of a batch depend on its rows."""
    is_compiling = torch.compiler.is_compiling

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def normalizing(
            input: Any,
            running_mean: Any,
            running_var: Any,
            weight: Any = None,
            bias: Any = None,
            training: bool = False,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            runs = running_mean is not None and running_var is not None
            if not is_compiling():
                script.dropout |= bool(training and runs)
            return real(input, running_mean, running_var, weight, bias, training and not runs, *args, **kwargs)

        return normalizing

    replace(torch.nn.functional, "batch_norm", make)
    torch.nn.SyncBatchNorm.forward = torch.nn.BatchNorm1d.forward  # the one that all others have


def sent_anew(modules: Iterable[Module]) -> set[int]:
    """The ids of the buffers that a rank gets from the first one whenever a forward begins."""
    wholes = [part for part in modules if type(part).__name__ in WHOLE and getattr(part, "broadcast_buffers", False)]
    return {id(buffer) for whole in wholes for buffer in whole.buffers()}


def _buffers(model: Module) -> dict[str, tuple[int, int]]:
    """Those of real numbers: a counter is none of them. By name, which tensor each is, and how often it has changed."""
    found: Iterable[tuple[str, Any]] = model.named_buffers()
    return {
        plain(name): (id(one), 0 if one.is_inference() else one._version)
        for name, one in found
        if one.is_floating_point()
    }
