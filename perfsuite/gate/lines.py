"""Lines of a verdict: what every rule looks at, and how it says what it found."""

from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.records import Line, Measurement, Reading
from perfsuite.units import show_bytes


@dataclass(frozen=True)
class Scope:
    """What a rule may look at beside the metric's two readings."""

    new: Measurement
    old: Measurement
    strategy: str
    time_tolerance: float


def text(
    metric: Metric,
    status: str,
    old: Reading | None,
    new: Reading | None,
    change: str = "",
    allowed: str = "",
    note: str = "",
) -> Line:
    """A line of two readings' values. Where they differ but read alike, all digits are shown."""
    before, after = (metric.show(reading.value) if reading else "none" for reading in (old, new))
    if old and new and old.value != new.value and before == after:
        unit = " B" if metric.show is show_bytes else ""
        before, after = (f"{reading.value:,}{unit}" for reading in (old, new))
    return say(metric, status, before, after, change, allowed, note)


def say(
    metric: Metric, status: str, old: str, new: str, change: str, allowed: str, note: str = "", detects: str = ""
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
