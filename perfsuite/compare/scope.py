"""What every rule reads, and the line that it returns."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfsuite.catalog.definitions import HALF_PRECISION, Metric
from perfsuite.compare.terms import Terms, terms_of
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import NONE, Change, ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status

# Relative bound of "close" numbers in low precision; in fp32 it is the metric's own. Two orders of summation differ by
# some units in the last place: fp32 has 1.2e-7, bf16 7.8e-3, and a loss averages them. fp16 (9.8e-4) skips different
# steps when one overflows, so it gets bf16's bound.
LOW_PRECISION_BOUND = 2e-2
# Smaller numbers count as this large: a gradient norm near zero is a difference of terms around 1, and consists only of
# their rounding errors, 1e-7.
FLOOR = 1e-3


@dataclass(frozen=True)
class Scope:
    """What a rule may read in addition to the metric's two readings.

    ``strategy`` is the canonical name, such as "zero3+bf16"; of two strategies, both. ``runs`` are the baseline's on
    this machine, ``changed`` is what else differs from them, and ``own_code`` how perfsuite's own code does.
    ``drifted`` are the times that have drifted ``since`` the first of them, by how much. Times are compared on the
    terms of the cell's class of hardware, or on its ``own_terms``.
    """

    new: Measurement
    old: Measurement
    strategy: str
    own_terms: Terms | None = None
    runs: Sequence[TimedRun] = ()
    changed: Sequence[Change] = ()
    own_code: Change | None = None
    drifted: Mapping[str, float] = field(default_factory=dict)
    since: str = ""

    @functools.cached_property
    def terms(self) -> Terms:
        """On which the times are compared."""
        return self.own_terms or terms_of(self.new.cell)

    @functools.cached_property
    def low_precision(self) -> bool:
        """Whether the strategy computes in less than fp32."""
        return low_precision(self.strategy)

    @functools.cached_property
    def finite(self) -> bool:
        """Whether every number of both sides is finite: one sum checks a thousand numbers at once. If the sum cannot
        show it, this is False, and each number must be checked.
        """
        readings = [*self.new.readings.values(), *self.old.readings.values()]
        samples = itertools.chain.from_iterable([reading.samples for reading in readings])
        values: list[float] = [reading.value for reading in readings]
        try:
            return math.isfinite(sum(samples, sum(values)))  # type: ignore[arg-type]
        except (OverflowError, TypeError):  # an integer larger than every float, or a step that overflowed
            return False


def changes(old: Mapping[str, str], new: Mapping[str, str], kind: ChangeKind = ChangeKind.RELEASE) -> list[Change]:
    """A change for each name that differs; NONE for a side that lacks the name."""
    pairs = [(name, old.get(name, NONE), new.get(name, NONE)) for name in {**old, **new}]
    return [Change(name, before, after, kind) for name, before, after in pairs if before != after]


def low_precision(strategy: str) -> bool:
    """Whether the strategy, e.g. "zero3+bf16", computes in less than fp32."""
    return not HALF_PRECISION.isdisjoint(strategy.split("+")[1:])


def bound_of(metric: Metric, in_low_precision: bool) -> float:
    """The relative bound of a "close" metric."""
    return LOW_PRECISION_BOUND if in_low_precision else metric.bound


def agree(before: float | None, after: float | None, bound: float) -> bool:
    """Whether two samples are close; None is a step that overflowed, which both sides must do."""
    if before is None or after is None:
        return before is after
    return abs(after - before) <= bound * max(abs(before), FLOOR)


def line_of(metric: Metric, status: Status, before: Reading | None, after: Reading | None, **more: Any) -> Line:
    """A line of two readings' values; ``more`` are other fields of Line."""
    values: dict[str, Any] = {"old": before.value if before else None, "new": after.value if after else None}
    return Line(metric=metric.name, title=metric.title, unit=metric.unit, status=status, **(values | more))
