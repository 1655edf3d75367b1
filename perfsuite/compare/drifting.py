"""Whether a cell's times have drifted since they were first accepted, although each run was as good as the last ones.

A pool of the newest runs follows a slow change: +1.5 % a night is usual on each night, and a factor of 2.4 after sixty.
So the first ANCHOR runs of a machine are kept for ever, and the newest RECENT ones are compared with them. With medians
a and b of n and m runs, and a run's spread s, the times have drifted if

    b - a > ln(1 + tolerance)   and   b - a > SURE · s · sqrt(π/2 · (1/n + 1/m))

A newest run that is as fast as a is none: what slowed the last ones has ended, and as a good run it is added.

The spread is that of neighbouring runs, which a slow change hardly widens (von Neumann 1941, "Distribution of the ratio
of the mean square successive difference to the variance"). π/2 is the variance of a median of normal numbers, over that
of their mean. ``python benchmarks/drifting_nights.py`` simulates how soon each slope and step is reported.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
ANCHOR = 10  # runs
RECENT = 15
LEAST = 5  # on each side
SURE = 4.5  # each night is a look, and the spread is an estimate itself


def drift_of(levels: Sequence[float], tolerance: float) -> float:
    """By how much the newest levels lie above the first ones, in logarithms; 0.0 if that may be noise, or is less than
    the ``tolerance``. ``levels`` are logarithms of seconds, oldest first.
    """
    first, last = levels[:ANCHOR], levels[ANCHOR:][-RECENT:]
    if min(len(first), len(last)) < LEAST or levels[-1] <= first_level(levels):
        return 0.0
    by = statistics.median(last) - first_level(levels)
    noise = spread_of(levels) * math.sqrt(math.pi / 2 * (1 / len(first) + 1 / len(last)))
    return by if by > max(math.log1p(tolerance), SURE * noise) else 0.0


def first_level(levels: Sequence[float]) -> float:
    """The level of the first runs, with which later ones are compared."""
    return statistics.median(levels[:ANCHOR])


def spread_of(levels: Sequence[float]) -> float:
    """The standard deviation of one run, from the differences of neighbours."""
    steps = [after - before for before, after in itertools.pairwise(levels)]
    return math.sqrt(sum(step**2 for step in steps) / 2 / len(steps))


def kept(runs: Sequence[T], window: int) -> list[T]:
    """The runs that stay: the anchor, and the newest ``window`` of the others."""
    return [*runs[:ANCHOR], *runs[ANCHOR:][-window:]]
