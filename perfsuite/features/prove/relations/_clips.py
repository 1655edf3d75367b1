"""Clips of gradients that are not those of an update: they come after it, find no gradient, or find scaled ones."""

from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from perfsuite.rank.norms import local, norm_of
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.torch_hooks import replace_clips, watch_scale
from perfsuite.rank.script.watched import parameters_of, replace

FEWEST = 3  # calls of a line, each of which is wrong


class Clips:
    """Watches torch's functions that clip."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        self.torch, self.script = torch, script
        self._inside = False  # one function calls another
        self._updated: set[int] = set()  # parameters whose gradient an optimizer has used since the last backward
        self._calls: Counter[str] = Counter()  # by the user's line
        self._late: Counter[str] = Counter()
        self._empty: Counter[str] = Counter()
        self._scaled: Counter[str] = Counter()
        self._scale = 1.0  # of the last loss, by a GradScaler
        self._unscaled: set[int] = set()  # parameters whose gradient it has divided since
        replace_clips(torch, self._clipping)
        watch_scale(torch, self._note_scale)
        replace(torch.amp.GradScaler, "unscale_", self._unscaling)

    def goes_backward(self) -> None:
        """Gradients are new."""
        self._updated.clear()

    def updates(self, optimizer: Any) -> None:
        """An optimizer uses the gradients that it has."""
        self._updated |= parameters_of(optimizer)

    def wrong(self) -> tuple[str, str]:
        """The kind and the line of clips of which each was wrong; empty if there is none."""
        for kind, counts in (("late", self._late), ("empty", self._empty), ("scaled", self._scaled)):
            for line, count in counts.items():
                if count >= FEWEST and count == self._calls[line]:
                    return kind, line
        return "", ""

    def _note_scale(self, scale: float) -> None:
        self._scale = scale
        self._unscaled.clear()

    def _unscaling(self, unscale: Callable[..., Any]) -> Callable[..., Any]:
        def unscaling(scaler: Any, optimizer: Any) -> Any:
            self._unscaled |= parameters_of(optimizer)
            return unscale(scaler, optimizer)

        return unscaling

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        def clipping(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not self.script.watched.is_here:
                return clip(parameters, *args, **kwargs)
            parameters = [parameters] if isinstance(parameters, self.torch.Tensor) else list(parameters)
            with_gradient = [one for one in parameters if one.grad is not None]
            late = bool(with_gradient) and all(id(one) in self._updated for one in with_gradient)
            scaled = self._scale != 1 and any(id(one) not in self._unscaled for one in with_gradient)
            before = self._norms(with_gradient) if late or scaled else []
            self._inside = True
            try:
                result = clip(parameters, *args, **kwargs)
            finally:
                self._inside = False
            line = self.script.line()
            self._calls[line] += 1
            self._empty[line] += not with_gradient
            changed = bool(before) and before != self._norms(with_gradient)
            self._late[line] += late and changed
            self._scaled[line] += scaled and not late and changed
            return result

        return clipping

    def _norms(self, parameters: Iterable[Any]) -> list[float]:
        return [norm_of(local(one.grad)) for one in parameters]
