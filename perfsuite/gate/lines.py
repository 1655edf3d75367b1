"""Lines of a verdict: what every rule reads, and how it reports the result."""

import itertools
import math
from collections.abc import Mapping, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.terms import Terms, terms_of
from perfsuite.records.baseline import TimedRun
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_bytes
from perfsuite.wire.sample import Reading

# Relative bound of "close" numbers in low precision; in fp32 it is the metric's own. Two orders of summation differ by
# some units in the last place: fp32 has 1.2e-7, bf16 7.8e-3, and a loss averages them. fp16 (9.8e-4) skips different
# steps when one overflows, so it gets bf16's bound.
LOW_PRECISION_BOUND = 2e-2
LOW_PRECISION = frozenset({"fp16", "bf16", "pure_bf16"})
# Smaller numbers count as this large: a gradient norm near zero is a difference of terms around 1, and consists only of
# their rounding errors, 1e-7.
FLOOR = 1e-3
UNTRIED = "a change that was not tried may be slower"  # of a time that the trial found no slower
NONE = "none"  # the text of a name that one side lacks


class Scope:
    """What a rule may read in addition to the metric's two readings.

    ``finite`` is True if every number of both sides is finite: one sum checks a thousand numbers at once. If the sum
    cannot show it, ``finite`` is False, and each number must be checked. ``runs`` are the baseline's on this machine,
    ``changed`` is what else differs from them, and ``own_code`` how perfsuite's own code does. ``drifted`` are the
    times that have drifted ``since`` the first of them, by how much. The times are compared on the ``terms``.
    """

    def __init__(
        self,
        new: Measurement,
        old: Measurement,
        strategy: str,
        terms: Terms | None = None,
        runs: Sequence[TimedRun] = (),
        changed: Sequence[str] = (),
        own_code: str = "",
        drifted: Mapping[str, float] | None = None,
        since: str = "",
    ) -> None:
        self.new, self.old, self.runs, self.changed, self.own_code = new, old, runs, changed, own_code
        self.drifted, self.since = drifted or {}, since
        self.terms = terms or terms_of(new.cell)
        self.strategy, self.low_precision = strategy, low_precision(strategy)
        readings = [*new.readings.values(), *old.readings.values()]
        samples = itertools.chain.from_iterable([reading.samples for reading in readings])
        values: list[float] = [reading.value for reading in readings]
        try:
            self.finite = math.isfinite(sum(samples, sum(values)))  # type: ignore[arg-type]
        except (OverflowError, TypeError):  # an integer larger than every float, or a step that overflowed
            self.finite = False


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """``torch 2.12 -> 2.13`` for each name that differs."""
    return [f"{name} {before} -> {after}" for name, before, after in differing(old, new)]


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, text before and text after of each name whose texts differ; NONE for a side that lacks the name."""
    pairs = [(name, old.get(name, NONE), new.get(name, NONE)) for name in {**old, **new}]
    return [(name, before, after) for name, before, after in pairs if before != after]


def low_precision(strategy: str) -> bool:
    """Whether the strategy, e.g. "zero3+bf16", computes in less than fp32."""
    return not LOW_PRECISION.isdisjoint(strategy.split("+")[1:])


def bound_of(metric: Metric, in_low_precision: bool) -> float:
    """The relative bound of a "close" metric."""
    return LOW_PRECISION_BOUND if in_low_precision else metric.bound


def agree(before: float | None, after: float | None, bound: float) -> bool:
    """Whether two samples are close; None is a step that overflowed, which both sides must do."""
    if before is None or after is None:
        return before is after
    return abs(after - before) <= bound * max(abs(before), FLOOR)


def text(
    metric: Metric,
    status: Status,
    old: Reading | None,
    new: Reading | None,
    change: str = "",
    allowed: str = "",
    note: str = "",
) -> Line:
    """A line of two readings' values. If they differ but read alike, all digits are shown."""
    before = metric.show(old.value) if old else "none"
    after = before if old and new and old.value == new.value else metric.show(new.value) if new else "none"
    if old and new and old.value != new.value and before == after:
        unit = " B" if metric.show is show_bytes else ""
        before, after = (f"{reading.value:,}{unit}" for reading in (old, new))
    return say(metric, status, before, after, change, allowed, note)


def say(
    metric: Metric, status: Status, old: str, new: str, change: str, allowed: str, note: str = "", detects: str = ""
) -> Line:
    return Line(
        metric=metric.name,
        title=metric.title,
        status=status,
        old=old,
        new=new,
        change=change,
        allowed=allowed,
        note=note,
        detects=detects,
    )
