"""Where a series steps: exactly for numbers that repeat themselves, by asv's own detection for times.

asv's detection fits a piecewise constant function. In a short series it also reports a single noisy rung as a step. So
a step of a time must be larger than the threshold and than the usual differences between neighbours, and the intervals
of the two rungs must not overlap. It takes a climb of several steps in a row for one noisy level, so climbs are
searched separately. A series that moves too little for a step with each release, but always in one direction, is a
drift.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from perfsuite.features.ladder.asv import THRESHOLD
from perfsuite.features.ladder.asv_results import Benchmark, Key, Run, Value
from perfsuite.features.ladder.ladder import Rung

SCATTER = 3.0  # a step is at least so many times larger than the median difference of neighbours
LEAST = 4  # pairs of neighbours, apart from a step, that are enough to know what is usual
SURE = 2 * THRESHOLD  # a climb's step that is larger is likely to be confirmed
CLIMB = 3  # the fewest steps in one direction that are a climb
CLIMB_CHANCE, DRIFT_CHANCE = 0.02, 0.01  # that so many rungs are so much in order by chance


@dataclass(frozen=True)
class SeriesStep:
    """A series moves between two rungs, from ``old`` to ``new``. None: the benchmark fails there.

    ``drift``: it moves gradually, over so many releases; 0 if it steps.
    """

    key: Key
    noisy: bool
    old_rung: str
    new_rung: str
    old: float | None
    new: float | None
    drift: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether its numbers repeat themselves; whether a benchmark fails always does."""
        return not self.noisy or self.old is None or self.new is None

    @property
    def kind(self) -> str:
        """What happened; lower is better."""
        if self.new is None:
            return "broke"
        if self.old is None:
            return "mended"
        return "regressed" if self.new > self.old else "improved"


def find(rungs: Sequence[Rung], runs: Mapping[str, Run], benchmarks: Mapping[str, Benchmark]) -> list[SeriesStep]:
    """All steps, in the order of the rungs. A rung that failed as a whole is skipped: it has its own line."""
    known = [rung.name for rung in rungs if rung.name in runs and not runs[rung.name].failure]
    series: dict[Key, list[tuple[str, Value]]] = {}
    for name in known:
        for key, value in runs[name].by_key():
            series.setdefault(key, []).append((name, value))
    steps = [step for key, points in series.items() for step in _of(key, points, benchmarks[key[0]].noisy)]
    return sorted(steps, key=lambda step: (known.index(step.new_rung), step.key))


def _of(key: Key, points: Sequence[tuple[str, Value]], noisy: bool) -> list[SeriesStep]:
    """The steps of one series: into and out of failure, and of its numbers."""
    steps = []
    for (old_rung, old), (new_rung, new) in itertools.pairwise(points):
        if (old.value is None) != (new.value is None) or (not noisy and old.value != new.value):
            steps.append(SeriesStep(key, noisy, old_rung, new_rung, old.value, new.value))
    if noisy:
        steps += _noisy(key, [(rung, value) for rung, value in points if value.value is not None])
    return steps


def _noisy(key: Key, points: Sequence[tuple[str, Value]]) -> list[SeriesStep]:
    """The steps of a time. Its drifts, if it has no steps, or steps so small that noise may hide each of them."""
    if len(points) < 2:
        return []
    numbers = [value.value or 0.0 for _, value in points]
    apart, found = climbs(numbers), []
    for at, old, new in _edges(points, apart):
        usual = scatter(numbers, apart | {at})
        if ratio(old, new) - 1 > max(THRESHOLD, SCATTER * usual) and _apart(points[at][1], points[at + 1][1]):
            found.append((at, SeriesStep(key, True, points[at][0], points[at + 1][0], old, new)))
    sure = [at for at, step in found if at not in apart or ratio(step.old or 0.0, step.new or 0.0) - 1 > SURE]
    ends = [0, *(at + 1 for at in sure), len(points)]
    drifts = [_drift(key, points[start:end]) for start, end in itertools.pairwise(ends)]
    return [*(step for _, step in found), *(step for step in drifts if step)]


def _edges(points: Sequence[tuple[str, Value]], apart: Set[int]) -> list[tuple[int, float, float]]:
    """Pairs of neighbours that may be steps, by the first one's number, with the usual difference before and after:
    where asv's fit steps, and ``apart``, since its fit makes one segment of a climb.
    """
    from asv._stats import get_weight
    from asv.step_detect import detect_steps

    numbers = [value.value or 0.0 for _, value in points]
    weights = [get_weight(_interval(value)) for _, value in points]
    levels = []
    for start, end, level, *_ in detect_steps(numbers, weights):
        cuts = [start, *(at + 1 for at in sorted(apart) if start <= at < end - 1), end]
        levels += [
            (first, last, statistics.median(numbers[first:last]) if len(cuts) > 2 else level)
            for first, last in itertools.pairwise(cuts)
        ]
    return [(end - 1, old, new) for (_, end, old), (_, _, new) in itertools.pairwise(levels)]


def climbs(numbers: Sequence[float]) -> set[int]:
    """The steps of a series that repeatedly gets worse, or better, by the first one's number of each pair. They are
    pairs of neighbours that divide a stretch, `CLIMB` or more, in which the rungs are in order. A stretch is the whole
    series, or lies between its lowest, its highest and its ends: a release may have fixed everything at once.
    """
    last = len(numbers) - 1
    turns = sorted({0, last, numbers.index(min(numbers)), numbers.index(max(numbers))})
    stretches = [(0, last), *itertools.pairwise(turns)]
    parting = [_parting(numbers, *ends) for ends in stretches]
    several = (
        len(pairs) >= CLIMB and in_order(numbers[start : end + 1], CLIMB_CHANCE)
        for pairs, (start, end) in zip(parting, stretches, strict=True)
    )
    return set().union(*parting) if any(several) else set()


def _parting(numbers: Sequence[float], start: int, end: int) -> set[int]:
    """The pairs that divide the stretch from ``start`` to ``end``, both included: all above is beyond all below, by
    more than the threshold.
    """
    found = set()
    for at in range(start, end):
        below, above = numbers[start : at + 1], numbers[at + 1 : end + 1]
        parts = max(below) < min(above) or max(above) < min(below)
        if parts and ratio(numbers[at], numbers[at + 1]) - 1 > THRESHOLD:
            found.add(at)
    return found


def _drift(key: Key, points: Sequence[tuple[str, Value]]) -> SeriesStep | None:
    """The lowest rung against the highest, if the rungs between are in order."""
    (old_rung, first), (new_rung, last) = points[0], points[-1]
    old, new = first.value or 0.0, last.value or 0.0
    ordered = in_order([value.value or 0.0 for _, value in points], DRIFT_CHANCE)
    if ratio(old, new) - 1 <= THRESHOLD or not ordered or not _apart(first, last):
        return None
    return SeriesStep(key, True, old_rung, new_rung, old, new, drift=len(points) - 1)


def in_order(numbers: Sequence[float], chance: float) -> bool:
    """Whether they rise, or fall, more consistently than numbers without a trend: Kendall's test of the pairs."""
    pairs = list(itertools.combinations(numbers, 2))
    against = min(sum(a > b for a, b in pairs), sum(a < b for a, b in pairs))
    orders = [1]  # permutations of so many numbers, by their number of inversions
    for count in range(2, len(numbers) + 1):
        sums = [0] * count + list(itertools.accumulate(orders + [0] * (count - 1)))
        orders = [high - low for low, high in zip(sums, sums[count:], strict=False)]
    return 2 * sum(orders[: against + 1]) <= chance * math.factorial(len(numbers))


def ratio(old: float, new: float) -> float:
    """The larger divided by the smaller; infinite if only one is 0."""
    low, high = sorted((abs(old), abs(new)))
    return high / low if low else 1.0 if high == 0 else float("inf")


def scatter(numbers: Sequence[float], apart: Set[int]) -> float:
    """The relative difference of neighbours, without the pairs ``apart``; 0 if there are too few."""
    pairs = [ratio(*pair) - 1 for pair in itertools.pairwise(numbers)]
    others = [size for at, size in enumerate(pairs) if at not in apart]
    return statistics.median(others) if others and len(pairs) > LEAST else 0.0


def _apart(a: Value, b: Value) -> bool:
    """Whether the 99 % intervals of two rungs do not overlap; true if one has none."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.high < b.low or b.high < a.low


def _interval(value: Value) -> dict[str, float] | None:
    """A value's interval as asv names it."""
    return None if value.low is None or value.high is None else {"ci_99_a": value.low, "ci_99_b": value.high}
