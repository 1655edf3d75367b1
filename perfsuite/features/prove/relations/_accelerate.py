"""Whether a script does the accumulation that it has asked accelerate for: its backward divides the loss by it."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perfsuite.rank.script.watched import replace

MODULE = "accelerate.accelerator"


class AskedAccumulation:
    """What an Accelerator is told, and whether its accumulate() is called."""

    def __init__(self) -> None:
        self._number = 0
        self._is_called = False

    def imported(self, module: ModuleType) -> None:
        """Its class is there."""
        if module.__name__ == MODULE:
            replace(module.Accelerator, "backward", functools.partial(self._noting, False))
            replace(module.Accelerator, "accumulate", functools.partial(self._noting, True))

    def _noting(self, accumulates: bool, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(accelerator: Any, *args: Any, **kwargs: Any) -> Any:
            self._number = int(accelerator.gradient_accumulation_steps)
            self._is_called |= accumulates
            return call(accelerator, *args, **kwargs)

        return noting

    def ignored(self, micro_batches: int) -> int:
        """The number that was asked for, if a step has fewer and nothing else accumulates; otherwise 0."""
        return self._number if not self._is_called and micro_batches < self._number else 0
