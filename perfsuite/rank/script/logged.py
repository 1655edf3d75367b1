"""The numbers that a script logs by its library, under their own names, and the losses of its evaluations.

An evaluation's loss is what the outermost module returns while autograd records nothing: a loss by that name, or the
first single number. What is logged are the numbers that go to the log of transformers' Trainer, of Accelerate and of
Lightning. Times and sizes of memory are left out by their names, since they never repeat.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

MOST = 200  # numbers of a name: each evaluation of a large set has many losses
VARYING = ("time", "second", "speed", "throughput", "memory")  # in the name of what differs between launches
EVALUATION = "loss without gradients"


class Logged:
    """Of this process: the numbers by name, in the order in which they came. None is a number that is not finite."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[float | None]] = {}
        self._trainers: list[Any] = []
        self._pending: list[Any] = []  # losses on a device, until the step has ended

    def log(self, values: object) -> None:
        """A library logs a dictionary."""
        if isinstance(values, Mapping):
            for name, value in values.items():
                self._add(str(name), value)

    def watch(self, trainer: Any) -> None:
        """Read the numbers of Lightning's ``trainer`` at the end of each step."""
        self._trainers.append(trainer)

    def evaluated(self, output: Any) -> None:
        """A module returns this while autograd records nothing. Nothing here calls an operator: a step counts them."""
        loss = _loss_of(output)
        if loss is None:
            return
        if loss.device.type == "cpu":
            self._add(EVALUATION, loss)
        elif len(self._pending) < MOST:
            self._pending.append(loss)

    def stepped(self) -> None:
        """A step has ended: what calls operators may be read now."""
        for loss in self._pending:
            self._add(EVALUATION, loss)
        self._pending.clear()
        for trainer in self._trainers:
            for name, value in dict(trainer.callback_metrics).items():
                number = _number(value)
                if self.numbers.get(name, [None])[-1:] != [number]:  # it keeps the last one until there is another
                    self._add(name, number)

    def _add(self, name: str, value: Any) -> None:
        if any(word in name.lower() for word in VARYING):
            return
        with contextlib.suppress(TypeError, ValueError):
            numbers = self.numbers.setdefault(name, [])
            if len(numbers) < MOST:
                numbers.append(_number(value))


def _number(value: Any) -> float | None:
    """Raises TypeError for what is no number, and ValueError for several."""
    if isinstance(value, bool | str) or value is None:
        raise TypeError
    number = float(value.tolist() if hasattr(value, "tolist") else value)
    return number if math.isfinite(number) else None


def _loss_of(output: Any) -> Any:
    """A tensor of a single number; None if the output has none."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    known = [loss, output, *(output if isinstance(output, tuple | list) else ())]
    return next(filter(_is_single, known), None)


def _is_single(value: Any) -> bool:
    return hasattr(value, "untyped_storage") and value.dim() == 0 and value.is_floating_point()
