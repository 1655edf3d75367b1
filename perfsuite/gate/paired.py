"""Two sides launched in pairs, and the ratio of their times. Pure functions of logarithms of seconds.

A pair is a launch of each side at the same time, by rank servers that are new for the pair, whose steps alternate: a
slow spell of the machine slows both (perfsuite/measure/duet.py). Which side begins is drawn by lot. Its difference is
the median of d = b - a over its steps. Pairs repeat what steps do not: memory layout, hash seeds, the order of threads.

The mean of the differences has Student's interval, with a spread that joins theirs and what is known of pairs
beforehand, as gate/noise.py joins it for runs: s² = (PRIOR_PAIRS · PRIOR_SPREAD² + Σ(dᵢ - mean)²) / f
with f = PRIOR_PAIRS + n - 1.

A trial looks after 3, 4, 6, 8, 12, 16 and 24 pairs (LOOKS) and ends as soon as it is sure. Each look has its share of
the error that is allowed, so that looking often convicts nobody (Bonferroni; Pocock 1977, "Group sequential methods in
the design and analysis of clinical trials", says by how little that is too strict). With the tolerance τ, the smallest
slow-down that must not go unseen,

    regressed   the whole interval lies beyond τ · HARMLESS
    same        a slow-down and a speed-up of τ are both ruled out, with MISSED
    improved    the whole interval lies below, by as much
    undecided   none of these, after the last pair

`python benchmarks/error_rates.py` simulates how often each is said of no change and of a real one.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfsuite.gate.noise import student

LOOKS = (3, 4, 6, 8, 12, 16, 24)
MOST_PAIRS = LOOKS[-1]
PRIOR_PAIRS = 1  # more of them convict equal sides where pairs spread by more than the prior says
PRIOR_SPREAD = 0.01  # of a pair's difference: benchmarks/detection.py measures it
HARMLESS = 0.25  # of the tolerance: a change that nobody needs to hear of
MISSED = 0.02  # the chance, at each look, to call a change as large as the tolerance the same
Conclusion = Literal["regressed", "improved", "same", "undecided"]
ERROR = 0.01  # the chance to convict or to praise an equal side, where nothing else is asked for


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

    def conclude(self, tolerance: float) -> Conclusion:
        """What the interval says of a change as large as the tolerance."""
        limit = math.log1p(tolerance)
        if self.low > limit * HARMLESS:
            return "regressed"
        if self.high < -limit * HARMLESS:
            return "improved"
        reach = student(1 - MISSED, self.freedom) * self.spread
        return "same" if abs(self.estimate) + reach < limit else "undecided"


def interval(differences: Sequence[float], error: float = ERROR) -> Interval | None:
    """None with fewer pairs than the first look has. ``error`` is the whole trial's, on each side."""
    count = len(differences)
    if count < LOOKS[0]:
        return None
    mean, freedom = statistics.fmean(differences), PRIOR_PAIRS + count - 1
    squares = PRIOR_PAIRS * PRIOR_SPREAD**2 + sum((one - mean) ** 2 for one in differences)
    return Interval(mean, math.sqrt(squares / freedom / count), freedom, error / len(LOOKS))


def decision(differences: Sequence[float], tolerance: float, error: float = ERROR) -> Conclusion:
    """What the pairs say so far; "undecided" where no look is due, since a look has its price."""
    found = interval(differences, error) if len(differences) in LOOKS else None
    return found.conclude(tolerance) if found else "undecided"
