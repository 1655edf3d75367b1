"""The noise of times: how far one more run may be from the runs of a baseline. Pure functions of logarithms of seconds.


The unit of noise is the run, not the step and not the launch: steps of one launch share its memory layout, launches of
one run share the machine's hour, and runs of different nights differ most (Kalibera and Jones 2013, "Rigorous
benchmarking in reasonable time", section 4.1: the highest level of repetition decides). A run is one number per metric,
the logarithm of its median, since noise multiplies.

One more run like the m runs of a baseline lies below

    mean + t(f, p) · s · sqrt(1 + 1/m)        (Hahn and Meeker 1991, "Statistical Intervals", section 4.7)

with probability p. The spread s combines the runs' own with the spread known for such hardware, which counts as much as
PRIOR_RUNS runs: s² = (PRIOR_RUNS · prior² + Σ(levelᵢ - mean)²) / f with f = PRIOR_RUNS + m - 1 (Gelman et al. 2013,
"Bayesian Data Analysis", 3rd edition, section 3.3). So one run has a bound too, and two runs that agree by chance do
not make the bound narrow.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

PRIOR_RUNS = 4
MAD = 1.4826  # the standard deviation of a normal distribution whose median absolute deviation is 1
MOST = 700.0  # its exponential is still a float


class NoisePool(NamedTuple):
    """Where the runs of a baseline predict one more, in logarithms."""

    mean: float
    spread: float  # the standard deviation of one more run around the mean, which is itself uncertain
    freedom: int

    @classmethod
    def of(cls, levels: Sequence[float], prior: float) -> "NoisePool":
        """From the levels of one run or more; ``prior`` is the relative spread of runs on such hardware."""
        mean, freedom = statistics.fmean(levels), PRIOR_RUNS + len(levels) - 1
        variance = (PRIOR_RUNS * prior**2 + sum((level - mean) ** 2 for level in levels)) / freedom
        return cls(mean, math.sqrt(variance * (1 + 1 / len(levels))), freedom)

    def reach(self, probability: float) -> float:
        """How far above the mean one more run lies, at most, with that probability."""
        return student(probability, self.freedom) * self.spread


def relative(logarithm: float) -> float:
    """The logarithm as a relative increase, limited to what a float can hold."""
    return math.expm1(min(logarithm, MOST))


def level_of(steps: Sequence[float]) -> float:
    """A launch's median step, as a logarithm."""
    return math.log(statistics.median(steps))


@functools.cache
def student(probability: float, freedom: int) -> float:
    """The quantile of Student's t, for probabilities from 0.5 on and whole degrees of freedom."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return high


def _student_cdf(t: float, freedom: int) -> float:
    """Abramowitz and Stegun 1964, 26.7.3 and 26.7.4, for t ≥ 0."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for index in range(1, (freedom - 1) // 2 + 1 if odd else freedom // 2 + 1):
        total += term
        term *= square * (2 * index / (2 * index + 1) if odd else (2 * index - 1) / (2 * index))
    if odd:
        return 0.5 + (angle + sine * total) / math.pi
    return 0.5 + sine * total / 2
