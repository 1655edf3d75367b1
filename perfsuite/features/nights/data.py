"""The numbers of a cell's page, as small as its charts allow.

A number is an integer times its metric's scale: five digits of the median, all digits of a count. A metric that
repeats itself is stored as runs of equal numbers.
"""

import itertools
import math
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.features.nights.change_points import ChangePoint
from perfsuite.features.nights.dashboard import Dashboard, moment
from perfsuite.features.nights.series import Series
from perfsuite.show.html.axes import Quantity
from perfsuite.show.html.markup import Html
from perfsuite.system.units import show_change

DIGITS = 5
GAP = 2.0**1000  # a night without a number
HUGE = 2.0**62
RUNS = 4  # a metric has so many nights per run of equal numbers if runs are shorter


def block(charts: list[dict[str, Any]]) -> Html:
    """The data of a page as an element that no browser runs; no text can end it."""
    text = msgspec.json.encode(charts).replace(b"<", b"\\u003c").decode()
    return Html(f'<script type="application/json" id="nights">{text}</script>')


def of_series(
    series: Series, metrics: list[Metric], changes: list[ChangePoint], dashboard: Dashboard
) -> dict[str, Any]:
    """What the page's script draws of one series."""
    minutes = [int(moment(date).timestamp() // 60) for date in series.dates]
    return {
        "first": minutes[0],
        "gaps": [new - old for old, new in itertools.pairwise(minutes)],
        "commits": series.commits if any(series.commits) else [],
        "notes": {night: dashboard.status(row) for night, row in series.rare.items()},
        "empty": [night for night, row in series.rare.items() if not row.metrics],
        "releases": [[night, _releases(moved)] for night, moved in series.releases()],
        "metrics": [_of_metric(series, metric, changes) for metric in metrics],
    }


def _of_metric(series: Series, metric: Metric, changes: list[ChangePoint]) -> dict[str, Any]:
    import numpy

    nights, known = series.numbers(metric.name)
    unit, size = Quantity.of(metric).unit(float(numpy.abs(known).max(initial=0.0)))
    scale = _scale(known)
    numbers = numpy.full(len(series.dates), GAP)
    numbers[nights] = numpy.rint(known / scale)
    values, runs = _listed(numbers), _runs(numbers)
    steps = [change for change in changes if change.metric == metric.name]
    return {
        "title": metric.title,
        "unit": unit,
        "scale": scale / size,
        **({"runs": runs} if len(runs) * RUNS < 2 * len(values) else {"values": values}),
        "steps": [[step.night, show_change(step.old, step.new), step.confirmed, step.worse] for step in steps],
        "red": [night for night, row in series.rare.items() if metric.name in row.red],
    }


def _scale(numbers: Any) -> float:
    """1 for whole numbers."""
    import numpy

    sizes = numpy.abs(numbers)
    if not len(sizes) or (numbers == numpy.rint(numbers)).all():
        return 1.0
    usual = float(numpy.median(sizes)) or float(sizes.max())
    return float(10.0 ** (math.floor(math.log10(usual)) - DIGITS + 1))


def _runs(numbers: Any) -> list[int | None]:
    """Each number, and how often it follows itself."""
    import numpy

    starts = numpy.flatnonzero(numpy.concatenate([[True], numbers[1:] != numbers[:-1]]))
    lengths = numpy.diff(numpy.append(starts, len(numbers)))
    return [one for pair in zip(_listed(numbers[starts]), lengths.tolist(), strict=True) for one in pair]


def _listed(numbers: Any) -> list[int | None]:
    """Whole numbers, and None for a gap."""
    import numpy

    gaps = numpy.flatnonzero(numbers == GAP)
    known = numpy.where(numbers == GAP, 0.0, numbers)
    whole = numpy.abs(known).max() < HUGE
    values: list[int | None] = known.astype("int64").tolist() if whole else [int(one) for one in known]
    for gap in gaps:
        values[gap] = None
    return values


def _releases(moved: dict[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} {old or 'none'} → {new or 'none'}" for name, (old, new) in moved.items())
