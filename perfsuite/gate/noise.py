"""The noise of times, and what can be seen through it. Pure functions of logarithms of seconds.

The unit of noise is the launch: steps of one launch share its memory layout, its cores and the machine's mood, and
vary less than launches do (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time", section 4.1; Georges,
Buytaert and Eeckhout 2007 take launches as the sample for the same reason). A launch is told by two numbers, its
median step and its slowest, its tail; both as logarithms, since noise multiplies.

A new launch is suspicious if it lies above the prediction bound of one more launch like the baseline's m,

    mean + t(m-1, 0.9) · s · sqrt(1 + 1/m)        (Hahn and Meeker 1991, section 4.7)

and, if every one of CONFIRMATIONS further launches does, it is slower. Of launches that follow the baseline's own
normal distribution all five do so in 0.4 % of cases with m = 3 (simulated), before any tolerance. A minimum of launches
is monotone: a step that gets slower can never excuse itself by the noise that it makes.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

LAUNCHES = 3  # that a baseline is recorded from
CONFIRMATIONS = 4  # further launches that a suspicion must survive, all of them
COVERAGE = 0.9  # one-sided, of the prediction bound
# How many of its own spreads above a baseline of so many launches a slow-down must lie, so that the lowest of 1 +
# CONFIRMATIONS launches is above the bound in 95 % of cases: simulated, 60,000 normal baselines each.
DETECTED = {2: 23.65, 3: 8.5, 4: 6.33, 5: 5.46, 6: 5.02, 8: 4.56, 10: 4.33}
LEAST_SPREAD = 0.005  # of launches: three of them can agree by luck
HIDDEN = 1.0  # a relative slow-down that noise may hide, with the tolerance once more on top of it
MOST = 700.0  # whose exponential is still a float
TAIL_TOLERANCE = 0.25  # least, relative: a slowest step is a noisy thing


class Level(NamedTuple):
    """What m launches of a baseline say of one more: where it should lie, in logarithms of seconds."""

    mean: float
    spread: float  # the standard deviation between launches
    launches: int

    @classmethod
    def of(cls, launches: Sequence[Sequence[float]]) -> "Level":
        """From the steps of at least two launches."""
        levels = [level_of(launch) for launch in launches]
        mean = math.fsum(levels) / len(levels)
        variance = sum([(level - mean) ** 2 for level in levels]) / (len(levels) - 1)
        return cls(mean, max(LEAST_SPREAD, math.sqrt(variance)), len(levels))

    @property
    def noise(self) -> float:
        """How far above the mean one more launch may lie."""
        return student(COVERAGE, self.launches - 1) * self.spread * math.sqrt(1 + 1 / self.launches)

    def smallest_effect(self, tolerance: float) -> float:
        """The relative slow-down, with the allowed one, that is found in 95 of 100 cases: by baselines as they come,
        since this one's own mean and spread may be lucky.
        """
        return relative(math.log1p(tolerance) + _detected(self.launches) * self.spread)


@functools.cache
def _detected(count: int) -> float:
    return DETECTED[max(known for known in DETECTED if known <= count)]


def too_wide(smallest_effect: float, tolerance: float) -> bool:
    """Whether noise with that smallest effect hides a step twice as slow, or what the tolerance makes of that: then
    nothing is held.
    """
    return not smallest_effect <= (1 + HIDDEN) * (1 + tolerance) ** 2 - 1


def relative(logarithm: float) -> float:
    """By how much more that is, as a share; a number too large for any float stays below it."""
    return math.expm1(min(logarithm, MOST))


def level_of(steps: Sequence[float]) -> float:
    """A launch's median step, as a logarithm."""
    ordered = sorted(steps)
    half = len(ordered) // 2
    return math.log(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def tail_bound(launches: Sequence[Sequence[float]], noise: float, tolerance: float) -> float:
    """Above which the slowest step of one more launch is too slow, as a logarithm: the slowest of all, by the noise of
    the level.
    """
    slowest = max([max(launch) for launch in launches])
    return math.log(slowest * (1 + max(tolerance, TAIL_TOLERANCE))) + noise


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
