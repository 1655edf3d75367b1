"""What a series did: where it stepped, and how far it is from where it was a week ago."""

import bisect
import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.noise import MAD
from perfsuite.features.nights.night_steps import NightStep, exact_steps, noisy_steps
from perfsuite.features.nights.series import Series
from perfsuite.records.verdict import RED
from perfsuite.system.units import BYTES

WEEK, BEFORE = datetime.timedelta(days=7), datetime.timedelta(days=28)
MOVED = 0.01  # relative; a smaller move of a time is left out
LEAST = 3  # nights before the week that show the usual noise
RESTLESS = 0.2  # share of nights with another number from which on a metric does not repeat itself
CONFIRMS = 7  # nights after a step within which a trial confirms it
HELD = ("exact", "close", "time")  # rules whose metrics are searched for steps
SMALLEST = Metric("predicted_smallest_bytes", "smallest memory that fits", BYTES, hold="exact")  # of predictions


@dataclass(frozen=True, kw_only=True)
class NightDifference:
    """Two numbers of a metric of a cell; ``worse`` is None for a metric that has no better side."""

    cell: str
    machine: str
    metric: str
    old: float
    new: float
    worse: bool | None

    @property
    def share(self) -> float:
        """0.05 for +5 %; infinite from 0."""
        return self.new / self.old - 1 if self.old else math.inf


@dataclass(frozen=True, kw_only=True)
class ChangePoint(NightDifference):
    """The metric stepped at a night. ``moved`` are the releases that changed with it."""

    night: int
    date: str
    commit: str
    moved: dict[str, tuple[str, str]]
    confirmed: bool


@dataclass(frozen=True, kw_only=True)
class Mover(NightDifference):
    """The median of the last week against that of the weeks before; ``noise`` is the move in usual deviations of a
    night, None for a metric that repeats itself.
    """

    noise: float | None


def metric_of(name: str, known: Mapping[str, Metric], unit: str) -> Metric:
    """The catalog's metric; one that it does not know has its name as title, and is only shown."""
    return known.get(name) or (SMALLEST if name == SMALLEST.name else Metric(name, name, unit))


def changes(series: Series, metrics: Sequence[Metric]) -> list[ChangePoint]:
    """Where the series' held metrics stepped, oldest first."""
    moved, found = dict(series.releases()), []
    for metric in metrics:
        if metric.hold not in HELD:
            continue
        nights, numbers = series.numbers(metric.name)
        for step in _steps(metric, numbers):
            night, since = int(nights[step.at]), int(nights[step.at - 1]) + 1
            found.append(
                ChangePoint(
                    **_between(series, metric, step.old, step.new),
                    night=night,
                    date=series.dates[night],
                    commit=series.commits[night],
                    moved={name: pair for at in range(since, night + 1) for name, pair in moved.get(at, {}).items()},
                    confirmed=_confirmed(series, metric.name, night),
                )
            )
    return sorted(found, key=lambda change: change.night)


def movers(series: Series, metrics: Sequence[Metric], until: datetime.datetime) -> list[Mover]:
    """The held metrics whose median of the week before ``until`` differs from the four weeks before."""
    begin, middle = _weeks(series, until)
    found = []
    for metric in metrics:
        if metric.hold not in HELD:
            continue
        nights, numbers = series.numbers(metric.name)
        first, second = nights.searchsorted([begin, middle])
        past, now = numbers[first:second].tolist(), numbers[second:].tolist()
        if not now or len(past) < LEAST:
            continue
        mover = _mover(series, metric, past, now)
        if mover:
            found.append(mover)
    return found


def before(series: Series, until: datetime.datetime) -> int:
    """How many results the four weeks have with which the last week is compared."""
    begin, middle = _weeks(series, until)
    return middle - begin


def _weeks(series: Series, until: datetime.datetime) -> tuple[int, int]:
    """The first night of the four weeks before the last one, and the first of the last one."""
    begin, middle = (bisect.bisect_right(series.dates, (until - age).isoformat()) for age in (BEFORE + WEEK, WEEK))
    return begin, middle


def _steps(metric: Metric, numbers: Any) -> list[NightStep]:
    if not len(numbers):
        return []
    if metric.is_time:
        return noisy_steps(numbers.tolist()) if numbers.min() > 0 else []
    steps = exact_steps(numbers)
    if metric.hold == "close":
        steps = [step for step in steps if not math.isclose(step.old, step.new, rel_tol=metric.bound)]
    return steps if len(steps) <= RESTLESS * len(numbers) else []


def _mover(series: Series, metric: Metric, past: Sequence[float], now: Sequence[float]) -> Mover | None:
    before, after = statistics.median(past), statistics.median(now)
    usual = MAD * statistics.median(abs(number - before) for number in past)
    bound = metric.bound if metric.hold == "close" else MOVED if metric.is_time else 0.0
    if abs(after - before) <= bound * abs(before) or abs(after - before) <= 2 * usual:
        return None
    noise = abs(after - before) / usual if usual else None
    return Mover(**_between(series, metric, before, after), noise=noise)


def _between(series: Series, metric: Metric, old: float, new: float) -> dict[str, Any]:
    """The fields of a Difference."""
    sided = metric.worse != "different" and metric.hold != "close"
    sides = {"old": old, "new": new, "worse": (new - old) * metric.sign > 0 if sided else None}
    return {"cell": series.cell, "machine": series.machine, "metric": metric.name, **sides}


def _confirmed(series: Series, metric: str, night: int) -> bool:
    """Whether a trial of this night, or of one soon after, found the metric red."""
    rows = (series.rare.get(at) for at in range(night, night + CONFIRMS))
    return any(row and row.trial and row.status in RED and metric in row.red for row in rows)
