"""The selftest's result for one fault, exact or in time, and the interval of a counted share."""

import math
from collections.abc import Callable

from perfsuite.records.record import Record

CONFIDENCE = 0.95
HALVINGS = 50  # of the interval that contains an end: to fifteen digits


class FaultRow(Record, frozen=True, kw_only=True):
    """The result of one fault: ``said`` is the line of the gate's text that shows it, or else its first.

    For a fault in time, ``red`` of ``trials`` trials found a slow-down; ``low`` to ``high`` is the interval of that
    share.
    """

    name: str
    kind: str
    cell: str
    where: str
    status: str
    said: str
    caught: bool
    expected: str
    red: int = 0
    trials: int = 0
    low: float = 0.0
    high: float = 1.0


def interval_of(count: int, trials: int) -> tuple[float, float]:
    """The shares that this count does not exclude (Clopper and Pearson 1934, "The use of confidence or fiducial limits
    illustrated in the case of the binomial"). It is valid with three trials too: Wilson's, an approximation, excludes
    95 % after 2 of 3.
    """
    beyond = (1 - CONFIDENCE) / 2
    low = 0.0 if count == 0 else _share(lambda share: 1 - _at_most(count - 1, trials, share) < beyond)
    high = 1.0 if count == trials else _share(lambda share: _at_most(count, trials, share) > beyond)
    return low, high


def _at_most(count: int, trials: int, share: float) -> float:
    """The probability of this count or less."""
    return sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(count + 1))


def _share(is_below: Callable[[float], bool]) -> float:
    """The share at which the answer turns from yes to no."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
