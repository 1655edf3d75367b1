"""How large a fault must be to be seen: at least as large as the cell's baseline says that it detects."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from perfsuite.gate.noise import Level, tail_bound
from perfsuite.gate.timing import noise_scale
from perfsuite.records import Measurement
from perfsuite.selftest.delays import ONE_STEP_IN
from perfsuite.units import show_bytes, show_ratio

TOLERANCE = 0.05  # of time, in the selftest: what is allowed on top of the noise
SLOW_STEP = 0.1  # the slow-down to be found on a quiet machine
MARGIN = 1.3  # of the smallest effect that is found 95 times in a hundred
TAIL_MARGIN = 2.0  # of a single step's, which is as noisy as steps are
SHARE_OF_PEAK = 1000


@dataclass(frozen=True)
class Size:
    """The number behind a fault's name, and what it means."""

    number: int
    text: str


Effect = Callable[[Measurement], Size]


def slow_step(baseline: Measurement) -> Size:
    """Percent of every step: 10, or what the baseline detects and a margin."""
    detects = Level.of(_launches(baseline)).smallest_effect(TOLERANCE)
    percent = math.ceil(100 * max(SLOW_STEP, MARGIN * detects))
    return Size(percent, f"+{percent} %, detects +{show_ratio(detects)}")


def slow_tail(baseline: Measurement) -> Size:
    """Percent of one step in ten, such that an ordinary step, so delayed, lies above the bound of the slowest."""
    launches, by_clock = _launches(baseline), baseline.by_launch("step_time_seconds")
    level = Level.of(launches)
    bound = tail_bound(launches, level.noise, TOLERANCE) - level.mean
    bound = max(bound, tail_bound(by_clock, 0.0, TOLERANCE) - Level.of(by_clock).mean)
    least = statistics.NormalDist().inv_cdf(0.01) * level.spread  # of the new launches' levels
    detects = math.expm1(bound - least)
    percent = math.ceil(100 * TAIL_MARGIN * detects)
    return Size(percent, f"+{percent} % in 1 of {ONE_STEP_IN}, detects +{show_ratio(detects)}")


def bytes_of_peak(baseline: Measurement) -> Size:
    """A thousandth of the peak."""
    size = math.ceil(baseline.readings["peak_memory_bytes"].value / SHARE_OF_PEAK)
    return Size(size, f"{show_bytes(size)}, 0.1 % of the peak")


def _launches(baseline: Measurement) -> list[list[float]]:
    return noise_scale(baseline, baseline.by_launch("step_time_seconds"))
