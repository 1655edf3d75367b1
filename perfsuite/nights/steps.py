"""Where a series of nights steps.

An exact metric repeats itself, so every difference that lasts is a step. A time is noisy: a step counts if asv's Potts
fit and E-divisive both find it within `NEAR` nights, and if it is larger than the floor and than the series' own noise.
Outliers, drifts and noisy weeks fool one method alone. `benchmarks/change_points.py` measures how often both err.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.nights import divisive

FLOOR = 0.02  # relative; a smaller step of a time is left out
NOISE = 3.0  # a step is at least so many times larger than the usual difference of two nights
NEAR = 3  # nights between the two methods' answers
SIDE = 15  # nights on each side of a step that locate it and judge it
LEAST = 4  # nights that the new level must last
WINDOW = 400  # nights that are searched together


@dataclass(frozen=True)
class Step:
    """From night number ``at`` on, the level is ``new`` instead of ``old`` (medians of up to `SIDE` nights)."""

    at: int
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """1.05 for a step of +5 %; 1 if there is no old level to compare with."""
        return self.new / self.old if self.old else 1.0


def exact_steps(numbers: Sequence[float]) -> list[Step]:
    """Every change of a metric that repeats itself."""
    return [
        Step(at, numbers[at - 1], numbers[at]) for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1]
    ]


def noisy_steps(numbers: Sequence[float]) -> list[Step]:
    """The steps of a time, in the order of the nights. All numbers are positive."""
    logs = [math.log(number) for number in numbers]
    found = {at for start in _windows(len(logs)) for at in _voted(logs[start : start + WINDOW], start)}
    return _judged(logs, sorted(found))


def potts(numbers: Sequence[float]) -> list[int]:
    """The first night of every segment but the first, by asv."""
    from asv.step_detect import detect_steps

    return [start for start, *_ in detect_steps(list(numbers), [1.0] * len(numbers))][1:]


def _windows(count: int) -> range:
    """The first night of each window; windows overlap by half."""
    return range(0, max(1, count - WINDOW // 2), WINDOW // 2)


def _voted(logs: Sequence[float], start: int) -> list[int]:
    """The nights on which both methods agree."""
    if not _may_step(logs):
        return []
    one, other = potts(logs), divisive.change_points(logs)
    return [start + at for at in one if any(abs(at - near) <= NEAR for near in other)]


def _may_step(logs: Sequence[float]) -> bool:
    """Whether the medians of neighbouring nights differ anywhere by half of the floor; it is much faster than both."""
    import numpy

    values = numpy.asarray(logs)
    if len(values) < 2 * LEAST:
        return False
    medians = numpy.median(numpy.lib.stride_tricks.sliding_window_view(values, LEAST + 1), axis=1)
    return bool(numpy.ptp(medians) > FLOOR / 2) if len(medians) <= LEAST + 1 else bool(
        numpy.abs(medians[LEAST + 1 :] - medians[: -LEAST - 1]).max() > FLOOR / 2
    )


def _judged(logs: Sequence[float], candidates: Sequence[int]) -> list[Step]:
    """The candidates that are steps, each at the night that divides its surroundings best."""
    kept = list(candidates)
    while True:
        ends = [0, *kept, len(logs)]
        sides = [(logs[max(left, at - SIDE) : at], logs[at : min(right, at + SIDE)])
                 for left, at, right in zip(ends, ends[1:], ends[2:], strict=False)]
        weak = [(_strength(*side), at) for side, at in zip(sides, kept, strict=True)]
        if not weak or min(weak)[0] >= 1:
            break
        kept.remove(min(weak)[1])
    steps = []
    for left, at, right in zip(ends, ends[1:], ends[2:], strict=False):
        at = _located(logs, at, max(left, at - SIDE), min(right, at + SIDE))
        old, new = logs[max(left, at - SIDE) : at], logs[at : min(right, at + SIDE)]
        steps.append(Step(at, math.exp(statistics.median(old)), math.exp(statistics.median(new))))
    return steps


def _strength(old: Sequence[float], new: Sequence[float]) -> float:
    """How many times a step exceeds what it must; below 1 it is none."""
    if min(len(old), len(new)) < LEAST:
        return 0.0
    levels = [statistics.median(side) for side in (old, new)]
    apart = abs(levels[1] - levels[0])
    spread = _spread([*(value - levels[0] for value in old), *(value - levels[1] for value in new)])
    return apart / max(FLOOR, NOISE * spread)


def _spread(residuals: Sequence[float]) -> float:
    """A standard deviation that outliers do not change."""
    return 1.4826 * statistics.median(map(abs, residuals))


def _located(logs: Sequence[float], at: int, left: int, right: int) -> int:
    """The night within `NEAR` that leaves the smallest sum of absolute residuals."""

    def cost(night: int) -> float:
        return sum(
            sum(abs(value - level) for value in side)
            for side in (logs[left:night], logs[night:right])
            for level in (statistics.median(side),)
        )

    return min(range(max(left + 1, at - NEAR), min(right - 1, at + NEAR) + 1), key=lambda night: (cost(night), night))
