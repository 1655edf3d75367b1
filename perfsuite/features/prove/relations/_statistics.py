"""What a model computes with that depends on the whole batch: BatchNorm, and buffers that each forward changes."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from perfsuite.rank.script.probes import plain
from perfsuite.rank.torch_types import Module

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
        """The class of a BatchNorm, or a buffer that forwards change; empty if there is none."""
        norms = tuple(getattr(self._torch.nn, name) for name in BATCH_NORMS)
        found = next((type(one).__name__ for one in modules if isinstance(one, norms) and one.training), "")
        return found or next((name for name, count in self._changes.items() if count >= FEWEST), "")


def _buffers(model: Module) -> dict[str, tuple[int, int]]:
    """Those of real numbers: a counter is none of them. By name, which tensor each is, and how often it has changed."""
    found: Iterable[tuple[str, Any]] = model.named_buffers()
    return {
        plain(name): (id(one), 0 if one.is_inference() else one._version)
        for name, one in found
        if one.is_floating_point()
    }
