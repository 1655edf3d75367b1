"""Where a series of nights steps.

An exact metric repeats itself, so every difference is a step. A time is noisy: a step counts if asv's Potts fit and
E-divisive both find it within `NEAR` nights, and if it is larger than the floor and than the noise around it. Outliers,
drifts and noisy weeks fool one method alone. `benchmarks/change_points.py` measures how often this errs.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfsuite.compare.noise import MAD
from perfsuite.features.nights import divisive

FLOOR = 0.02  # relative; a smaller step of a time is left out
NOISE = 2.5  # a step is at least so many times larger than the noise of a night
NEAR = 3  # nights between the two methods' answers
SIDE = 15  # nights on each side of a step that locate it and judge it
LEAST = 4  # nights that the new level must last
AROUND = 100  # nights on each side of a suspicious one that both methods see
SUSPICIOUS = 0.6  # of what a step must exceed
EVERY = 3  # nights; a part of SIDE


@dataclass(frozen=True)
class NightStep:
    """From night number ``at`` on, the level is ``new`` instead of ``old`` (of a time, medians of `SIDE` nights)."""

    at: int
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """1.05 for a step of +5 %; infinite from 0."""
        return self.new / self.old if self.old else math.inf


def exact_steps(numbers: Sequence[float]) -> list[NightStep]:
    """Every change of a metric that repeats itself."""
    import numpy

    values = numpy.asarray(numbers, dtype=float)
    moved = numpy.flatnonzero(values[1:] != values[:-1]) + 1
    return [NightStep(int(at), float(values[at - 1]), float(values[at])) for at in moved]


def noisy_steps(numbers: Sequence[float]) -> list[NightStep]:
    """The steps of a time, in the order of the nights. All numbers are positive."""
    logs = [math.log(number) for number in numbers]
    found = {start + at for start, end in _suspicious(logs) for at in _voted(logs[start:end])}
    return _judged(logs, sorted(found))


def potts(numbers: Sequence[float]) -> list[int]:
    """The first night of every segment but the first, by asv."""
    from asv.step_detect import detect_steps

    return [start for start, *_ in detect_steps(list(numbers), [1.0] * len(numbers))][1:]


def _voted(logs: Sequence[float]) -> list[int]:
    """The nights on which both methods agree. The second method is asked only about what the first one finds."""
    candidates = potts(logs)
    others = divisive.change_points(logs) if candidates else []
    return [at for at in candidates if any(abs(at - other) <= NEAR for other in others)]


def _suspicious(logs: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Stretches (first night, end) with a night before and after which the medians differ. Both methods are slow, so
    they see nothing else.
    """
    start = end = 0
    for night in _moved(logs):
        if end and night - AROUND > end:
            yield start, end
        if not end or night - AROUND > end:
            start = max(0, night - AROUND)
        end = min(len(logs), night + AROUND)
    if end:
        yield start, end


def _moved(logs: Sequence[float]) -> list[int]:
    """The nights at which the level may move: every few nights, and every night near the ends."""
    found = [SIDE + EVERY * number for number in _strong(logs)]
    ends = {*range(SIDE), *range(len(logs) - SIDE, len(logs))}
    for at in ends:
        if 0 < at < len(logs) and _strength(logs[max(0, at - SIDE) : at], logs[at : at + SIDE]) >= SUSPICIOUS:
            found.append(at)
    return sorted(found)


def _strong(logs: Sequence[float]) -> list[int]:
    """The numbers of the strong ones of every few nights that have all nights of both sides; `_strength` of many."""
    import numpy

    if len(logs) < 2 * SIDE:
        return []
    sides = numpy.lib.stride_tricks.sliding_window_view(numpy.asarray(logs), SIDE)[::EVERY]
    levels = numpy.median(sides, axis=1)
    residuals = numpy.abs(sides - levels[:, None])
    gap = SIDE // EVERY  # views from a side to the next side
    apart = numpy.abs(levels[gap:] - levels[:-gap])
    spread = MAD * numpy.median(numpy.hstack([residuals[gap:], residuals[:-gap]]), axis=1)
    strong: list[int] = numpy.flatnonzero(apart >= SUSPICIOUS * numpy.maximum(FLOOR, NOISE * spread)).tolist()
    return strong


def _judged(logs: Sequence[float], candidates: Sequence[int]) -> list[NightStep]:
    """The candidates that are steps, each at the night that divides its surroundings best. The weakest goes first, so
    that its neighbours are judged with all nights between them.
    """
    kept = [_located(logs, *around) for around in _around(candidates, len(logs))]
    while kept:
        sides = [(logs[left:at], logs[at:right]) for left, at, right in _around(kept, len(logs))]
        weakest, at = min((_strength(*side), at) for side, at in zip(sides, kept, strict=True))
        if weakest >= 1:
            levels = [[math.exp(statistics.median(part)) for part in side] for side in sides]
            return [NightStep(at, *level) for at, level in zip(kept, levels, strict=True)]
        kept.remove(at)
    return []


def _around(nights: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Each night with the first one and the end of its surroundings, which reach neither neighbour."""
    ends = [0, *nights, count]
    return [
        (max(left, at - SIDE), at, min(right, at + SIDE))
        for left, at, right in zip(ends, ends[1:], ends[2:], strict=False)
    ]


def _strength(old: Sequence[float], new: Sequence[float]) -> float:
    """How many times a step exceeds what it must; below 1 it is none."""
    if min(len(old), len(new)) < LEAST:
        return 0.0
    before, after = statistics.median(old), statistics.median(new)
    residuals = [*(abs(value - before) for value in old), *(abs(value - after) for value in new)]
    return abs(after - before) / max(FLOOR, NOISE * MAD * statistics.median(residuals))


def _located(logs: Sequence[float], left: int, at: int, right: int) -> int:
    """The night within `NEAR` that leaves the smallest sum of absolute residuals."""

    def cost(night: int) -> float:
        sides = [logs[left:night], logs[night:right]]
        return sum(_residual(side) for side in sides)

    return min(range(max(left + 1, at - NEAR), min(right - 1, at + NEAR) + 1), key=cost)


def _residual(side: Sequence[float]) -> float:
    level = statistics.median(side)
    return sum(abs(value - level) for value in side)
