"""Two sides launched in pairs, and the ratio of their times. Pure functions of logarithms of seconds.

In a pair, each side is launched at the same time by new rank servers, and the steps alternate: if the machine slows
down, both sides do (perfsuite/run/duet.py). A random draw decides which side begins. The pair's difference is the
median of d = b - a over its steps. Pairs vary what steps do not: memory layout, hash seeds, the order of threads.

The mean of the differences has Student's interval. Its spread combines theirs with the spread known for pairs, as
compare/noise.py does for runs: s² = (PRIOR_PAIRS · PRIOR_SPREAD² + Σ(dᵢ - mean)²) / f with f = PRIOR_PAIRS + n - 1.

With the tolerance τ, the smallest slow-down that must be detected, an interval says

    regressed   all of it is beyond τ · HARMLESS
    ok          all of it is within ±τ; it is narrower, since it may miss with the chance MISSED
    improved    all of it is below, by as much
    open        none of these

The pairs of all cells are one body of evidence, in which each cell has such an interval: compare/pooling.py.

So two intervals are asked. Interval.decide returns the one on which its conclusion rests, and that one is printed. Of a
time that is open, it is the wide one: it is neither beyond τ · HARMLESS nor within ±τ.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsuite.compare.noise import student
from perfsuite.records.verdict import Status

FEWEST_PAIRS = 3  # that decide anything
PRIOR_PAIRS = 1  # with more, equal sides are called slower if pairs spread more than the prior
PRIOR_SPREAD = 0.01  # of a pair's difference: benchmarks/detection.py measures it
HARMLESS = 0.25  # of the tolerance: a change that need not be reported
MISSED = 0.02  # the chance, at each look, to call a change as large as the tolerance the same


def harmless(tolerance: float) -> float:
    """The relative change that need not be reported."""
    return math.expm1(math.log1p(tolerance) * HARMLESS)


@dataclass(frozen=True)
class Interval:
    """Of the mean difference, in logarithms. ``error`` is the chance that it lies outside on one side."""

    estimate: float
    spread: float  # of the estimate
    freedom: int
    error: float

    @property
    def half(self) -> float:
        """From the estimate to either end."""
        return student(1 - self.error, self.freedom) * self.spread

    @property
    def low(self) -> float:
        return self.estimate - self.half

    @property
    def high(self) -> float:
        return self.estimate + self.half

    @property
    def narrow(self) -> "Interval":
        """The one that rules out a change."""
        return replace(self, error=max(self.error, MISSED))

    def not_slower(self, tolerance: float) -> bool:
        """Whether a slow-down as large as the tolerance is ruled out, however much faster it may be."""
        return self.narrow.high < math.log1p(tolerance)

    def decide(self, tolerance: float) -> tuple[Status, "Interval"]:
        """The conclusion about a change as large as the tolerance, and the interval that implies it."""
        limit, least = math.log1p(tolerance), math.log1p(harmless(tolerance))
        if self.low > least:
            return Status.REGRESSED, self
        if self.high < -least:
            return Status.IMPROVED, self
        same = -limit < self.narrow.low and self.narrow.high < limit
        return (Status.OK, self.narrow) if same else (Status.OPEN, self)


def interval(differences: Sequence[float], error: float) -> Interval | None:
    """None with fewer pairs than decide anything. ``error`` is the chance that it lies outside on one side."""
    count = len(differences)
    if count < FEWEST_PAIRS:
        return None
    mean, freedom = statistics.fmean(differences), PRIOR_PAIRS + count - 1
    squares = PRIOR_PAIRS * PRIOR_SPREAD**2 + sum((difference - mean) ** 2 for difference in differences)
    return Interval(mean, math.sqrt(squares / freedom / count), freedom, error)
