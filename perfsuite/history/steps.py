"""Where a series steps: exactly for what repeats itself, by asv's own detection for times.

asv's detection fits a piecewise constant function. Of a series of a few rungs it also takes a single noisy rung for a
step, so a step of a time must be larger than the threshold and than what the series does between neighbours anyway,
and the intervals of the two rungs must be apart.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsuite.history.asv import THRESHOLD
from perfsuite.history.ladder import Rung
from perfsuite.history.results import Benchmark, Key, Run, Value

SCATTER = 3.0  # a step is so many times larger than the median difference of neighbours
LEAST = 4  # pairs of neighbours from which on their median says what is usual; below, releases may all differ


@dataclass(frozen=True)
class Step:
    """A series moves between two rungs, from ``old`` to ``new``. None: the benchmark fails there."""

    key: Key
    noisy: bool
    old_rung: str
    new_rung: str
    old: float | None
    new: float | None

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
    from asv._stats import get_weight
    from asv.step_detect import detect_steps

    numbers = [value.value or 0.0 for _, value in points]
    weights = [get_weight(_interval(value)) for _, value in points]
    found = detect_steps(numbers, weights) if len(points) > 1 else []
    steps = []
    for (_, end, old, *_), (start, _, new, *_) in itertools.pairwise(found):
        size = ratio(old, new) - 1
        if size > max(THRESHOLD, SCATTER * scatter(numbers, end - 1)) and _apart(points[end - 1][1], points[start][1]):
            steps.append(Step(key, True, points[end - 1][0], points[start][0], old, new))
    return steps


def ratio(old: float, new: float) -> float:
    """The larger by the smaller; infinite where only one is 0."""
    low, high = sorted((abs(old), abs(new)))
    return high / low if low else 1.0 if high == 0 else float("inf")


def scatter(numbers: Sequence[float], step: int) -> float:
    """How much neighbours differ, relatively, without the pair in question; 0 where too few others could tell."""
    others = [ratio(*pair) - 1 for at, pair in enumerate(itertools.pairwise(numbers)) if at != step]
    return statistics.median(others) if len(others) >= LEAST else 0.0


def _apart(a: Value, b: Value) -> bool:
    """Whether the 99 % intervals of two rungs have nothing in common; true where one has none."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.high < b.low or b.high < a.low


def _interval(value: Value) -> dict[str, float] | None:
    """A value's interval as asv names it."""
    return None if value.low is None or value.high is None else {"ci_99_a": value.low, "ci_99_b": value.high}
