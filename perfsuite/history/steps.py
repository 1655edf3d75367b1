"""Where a series steps: exactly for what repeats itself, by asv's own detection for times.

asv's detection fits a piecewise constant function. Of a series of a few rungs it also takes a single noisy rung for a
step, so a step of a time must be larger than the threshold and than what the series does between neighbours anyway,
and the intervals of the two rungs must be apart. A climb of several steps in a row it takes for one noisy level, so
those are sought beside it; and what moves too little with each release for a step, but always one way, is a drift.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from perfsuite.history.asv import THRESHOLD
from perfsuite.history.ladder import Rung
from perfsuite.history.results import Benchmark, Key, Run, Value

SCATTER = 3.0  # a step is so many times larger than the median difference of neighbours
LEAST = 4  # pairs of neighbours beside a step from which on they say what is usual; below, releases may all differ
SURE = 2 * THRESHOLD  # a climb's step of more is confirmed if it is there
CLIMB = 3  # steps in one direction from which on it is one
CLIMB_CHANCE, DRIFT_CHANCE = 0.02, 0.01  # that so many rungs are as much in order though nothing moves them


@dataclass(frozen=True)
class Step:
    """A series moves between two rungs, from ``old`` to ``new``. None: the benchmark fails there.

    ``drift``: it goes there little by little, over so many releases; 0 where it steps.
    """

    key: Key
    noisy: bool
    old_rung: str
    new_rung: str
    old: float | None
    new: float | None
    drift: int = 0

    @property
    def kind(self) -> str:
        """What happened, lower being better."""
        if self.new is None:
            return "broke"
        if self.old is None:
            return "mended"
        return "regressed" if self.new > self.old else "improved"


def find(rungs: Sequence[Rung], runs: Mapping[str, Run], benchmarks: Mapping[str, Benchmark]) -> list[Step]:
    """All steps, in the order of the rungs. A rung that failed as a whole is passed over: it has a line of its own."""
    known = [rung.name for rung in rungs if rung.name in runs and not runs[rung.name].failure]
    series: dict[Key, list[tuple[str, Value]]] = {}
    for name in known:
        for key, value in runs[name].by_key():
            series.setdefault(key, []).append((name, value))
    steps = [step for key, points in series.items() for step in _of(key, points, benchmarks[key[0]].noisy)]
    return sorted(steps, key=lambda step: (known.index(step.new_rung), step.key))


def _of(key: Key, points: Sequence[tuple[str, Value]], noisy: bool) -> list[Step]:
    """The steps of one series: in and out of failure, and of its numbers."""
    steps = []
    for (old_rung, old), (new_rung, new) in itertools.pairwise(points):
        if (old.value is None) != (new.value is None) or (not noisy and old.value != new.value):
            steps.append(Step(key, noisy, old_rung, new_rung, old.value, new.value))
    if noisy:
        steps += _noisy(key, [(rung, value) for rung, value in points if value.value is not None])
    return steps


def _noisy(key: Key, points: Sequence[tuple[str, Value]]) -> list[Step]:
    """The steps of a time, and its drifts where it does not step, or by so little that noise may hide each of them."""
    if len(points) < 2:
        return []
    numbers = [value.value or 0.0 for _, value in points]
    apart, found = climbs(numbers), []
    for at, old, new in _edges(points, apart):
        usual = scatter(numbers, apart | {at})
        if ratio(old, new) - 1 > max(THRESHOLD, SCATTER * usual) and _apart(points[at][1], points[at + 1][1]):
            found.append((at, Step(key, True, points[at][0], points[at + 1][0], old, new)))
    sure = [at for at, step in found if at not in apart or ratio(step.old or 0.0, step.new or 0.0) - 1 > SURE]
    ends = [0, *(at + 1 for at in sure), len(points)]
    drifts = [_drift(key, points[start:end]) for start, end in itertools.pairwise(ends)]
    return [*(step for _, step in found), *(step for step in drifts if step)]


def _edges(points: Sequence[tuple[str, Value]], apart: Set[int]) -> list[tuple[int, float, float]]:
    """Pairs of neighbours that may be steps, by the first one's number, with what is usual before and after: where
    asv's fit steps, and ``apart``, as its fit makes one segment of a climb.
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
    """The steps of a series that gets worse, or better, again and again, by the first one's number of each pair: pairs
    of neighbours that part a stretch, `CLIMB` or more, in which the rungs are in order. A stretch is the whole series,
    or lies between its lowest, its highest and its ends: a release may have mended it all at once.
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
    """The pairs that part the stretch from ``start`` to ``end``, both included: all above lies beyond all below, and
    they are apart by more than the threshold.
    """
    found = set()
    for at in range(start, end):
        below, above = numbers[start : at + 1], numbers[at + 1 : end + 1]
        parts = max(below) < min(above) or max(above) < min(below)
        if parts and ratio(numbers[at], numbers[at + 1]) - 1 > THRESHOLD:
            found.add(at)
    return found


def _drift(key: Key, points: Sequence[tuple[str, Value]]) -> Step | None:
    """The lowest rung against the highest, where the rungs between are in order."""
    (old_rung, first), (new_rung, last) = points[0], points[-1]
    old, new = first.value or 0.0, last.value or 0.0
    ordered = in_order([value.value or 0.0 for _, value in points], DRIFT_CHANCE)
    if ratio(old, new) - 1 <= THRESHOLD or not ordered or not _apart(first, last):
        return None
    return Step(key, True, old_rung, new_rung, old, new, drift=len(points) - 1)


def in_order(numbers: Sequence[float], chance: float) -> bool:
    """Whether they rise, or fall, as numbers without a trend do less often: Kendall's test of the pairs against it."""
    pairs = list(itertools.combinations(numbers, 2))
    against = min(sum(a > b for a, b in pairs), sum(a < b for a, b in pairs))
    orders = [1]  # of so many numbers, by how many pairs of them stand the wrong way round
    for count in range(2, len(numbers) + 1):
        sums = [0] * count + list(itertools.accumulate(orders + [0] * (count - 1)))
        orders = [high - low for low, high in zip(sums, sums[count:], strict=False)]
    return 2 * sum(orders[: against + 1]) <= chance * math.factorial(len(numbers))


def ratio(old: float, new: float) -> float:
    """The larger by the smaller; infinite where only one is 0."""
    low, high = sorted((abs(old), abs(new)))
    return high / low if low else 1.0 if high == 0 else float("inf")


def scatter(numbers: Sequence[float], apart: Set[int]) -> float:
    """How much neighbours differ, relatively, without the pairs ``apart``; 0 where there are too few to tell."""
    pairs = [ratio(*pair) - 1 for pair in itertools.pairwise(numbers)]
    others = [size for at, size in enumerate(pairs) if at not in apart]
    return statistics.median(others) if others and len(pairs) > LEAST else 0.0


def _apart(a: Value, b: Value) -> bool:
    """Whether the 99 % intervals of two rungs have nothing in common; true where one has none."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.high < b.low or b.high < a.low


def _interval(value: Value) -> dict[str, float] | None:
    """A value's interval as asv names it."""
    return None if value.low is None or value.high is None else {"ci_99_a": value.low, "ci_99_b": value.high}
