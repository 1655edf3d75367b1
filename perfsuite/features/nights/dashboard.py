"""What all pages of a dashboard know: metrics, owners, the latest day of each machine, and how a cell is."""

import datetime
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.project import Project
from perfsuite.features.nights.change_points import ChangePoint, Mover, metric_of
from perfsuite.features.nights.row import NightRow
from perfsuite.features.nights.series import Series
from perfsuite.records.verdict import OPEN, RED, Status
from perfsuite.show.html.document import Tone
from perfsuite.show.text.markdown import standing_of
from perfsuite.system.units import NUMBER, SECONDS

DAY = datetime.timedelta(hours=20)  # of a machine: results have no name of their run, and a night may take so long
CELLS = "cells"  # folder of the cells' pages
MAIN = 6  # metrics that are shown unfolded
_SAFE = re.compile(r"[^A-Za-z0-9_+.-]")


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """``ladders`` are the addresses of asv's sites by library, ``until`` the date of the newest result."""

    metrics: Mapping[str, Metric]
    project: Project
    ladders: Mapping[str, str] = field(default_factory=dict)
    until: datetime.datetime
    last: Mapping[str, str] = field(default_factory=dict)  # the date of each machine's newest result

    def metric(self, name: str) -> Metric:
        """Its definition; one that the catalog does not know is only shown."""
        return metric_of(name, self.metrics, SECONDS if name.endswith("_seconds") else NUMBER)

    def of(self, series: Series) -> list[Metric]:
        """The metrics of a series that are not empty: those that are red now first, then those of the summary table."""
        metrics = [self.metric(name) for name in series.columns]
        red = series.last.red if series.last else ()

        def place(one: Metric) -> tuple[object, ...]:
            return one.name not in red, one.column is None, one.column or 0, not one.is_time, one.title

        return sorted(metrics, key=place)

    def on_latest_day(self, row: NightRow) -> bool:
        """Whether the row is at most 20 hours older than the newest result of its machine."""
        return moment(row.date) > moment(self.last[row.machine]) - DAY

    def is_red(self, row: NightRow) -> bool:
        """Whether a run with this row fails."""
        return standing_of(row.status, row.accepted, row.quarantined) == "red"

    def tone(self, row: NightRow) -> Tone:
        """The colour of a row's status."""
        if self.is_red(row):
            return "red"
        if row.status in RED or row.status in OPEN:
            return "yellow"
        return "muted" if row.status == Status.UNSUPPORTED else "green"

    def why(self, row: NightRow) -> str:
        """What moved, or why there is no result."""
        return row.note or ", ".join(self.metric(name).title for name in row.red)

    def status(self, row: NightRow) -> str:
        """``regressed, quarantined until 2026-12-24``."""
        words = [row.outcome if row.outcome not in ("fits", row.status) else "", row.status]
        words += ["accepted" if row.accepted else "", f"quarantined until {row.quarantined}" if row.quarantined else ""]
        return ", ".join(filter(None, words))

    def release(self, library: str, version: str) -> str:
        """The address of a release on its library's ladder; empty if it has none."""
        address = self.ladders.get(library, "")
        return f"{address.rstrip('/')}/index.html#{version}" if address else ""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the overview shows of one series; ``recent`` are the newest numbers of its main time."""

    cell: str
    machine: str
    device: str
    kind: str
    results: int
    before: int  # results of the four weeks before the last one
    last: NightRow
    changes: Sequence[ChangePoint]
    movers: Sequence[Mover]
    recent: Sequence[float | None]


def page_of(cell: str) -> str:
    """The name of the cell's page. A name that a file cannot have gets a hash instead of its odd characters."""
    safe = _SAFE.sub("_", cell)[:150]
    return f"{safe}.html" if safe == cell else f"{safe}.{hashlib.sha256(cell.encode()).hexdigest()[:10]}.html"


def moment(date: str) -> datetime.datetime:
    """A row's date; one without a time zone is in UTC."""
    try:
        found = datetime.datetime.fromisoformat(date)
    except ValueError:
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def machine_name(device: str, machine: str) -> str:
    """``AMD EPYC (6d2f46c6eb5f)``."""
    return f"{device} ({machine})" if device else machine
