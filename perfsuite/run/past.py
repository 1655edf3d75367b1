"""What earlier runs tell about a cell: what it costs, how often it moved, and what it imported.

From reports of ``pytest --perf-report`` if they are given, and else from the baselines and their ledger.
"""

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.baselines import ledger
from perfsuite.baselines.store import Store
from perfsuite.errors import FileError
from perfsuite.records import report_lines
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import RED
from perfsuite.system.units import show_several

BASELINES = "baselines"


@dataclass(frozen=True)
class Past:
    """``seconds`` is the cost of the last run, 0 if it is not known; ``source`` is where it is from, in words. Of
    ``runs`` records, the cell ``moved`` in some: it was red, or a change of it was accepted. ``measurement`` is the
    last one.
    """

    seconds: float = 0.0
    source: str = ""
    runs: int = 0
    moved: int = 0
    measurement: Measurement | None = None

    @property
    def rate(self) -> float:
        """How probable it is that the next run tells something: Laplace's rule, 1/2 for a cell without a record."""
        return (self.moved + 1) / (self.runs + 2)


@dataclass
class History:
    """The past of cells by id; one without a record has an empty one."""

    cells: Mapping[str, Past] = field(default_factory=dict)

    def of(self, cell: str) -> Past:
        return self.cells.get(cell, Past())


def read_history(
    cells: Iterable[str], store: Store, reports: Sequence[Path] = (), here: Container[str] = ()
) -> History:
    """The costs are those of reports, if possible of machines ``here``, by identity. A baseline's cost is of a launch
    on the machine that recorded it, so it is scaled by the ratio of the cells that have both.

    Raises FileError for a report or a ledger that cannot be read. An unreadable baseline is no record: it is reported
    when its cell is measured.
    """
    cells, files = set(cells), show_several(len(reports), "report")
    runs: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    sources: dict[str, str] = {}
    last: dict[str, Measurement] = {}
    for entry in ledger.read(store.ledger)[0]:
        runs[entry.cell] += 1
        moved[entry.cell] += entry.change == "changed" and not entry.consent.endswith("times")
    results = [result for path in reports for result in report_lines.read_measured(path)]
    for result in sorted(results, key=lambda result: _date(result.measurement)):
        cell = result.measurement.cell
        runs[cell] += 1
        moved[cell] += result.verdict.status in RED
        if result.measurement.readings:
            last[cell] = result.measurement
            ours = result.measurement.machine.identity in here
            if ours or sources.get(cell) in (None, files):
                seconds[cell] = result.seconds or _seconds(result.measurement)
                sources[cell] = f"{files} of this machine" if ours else files
    missing = cells - last.keys()
    stored = _stored(cells if missing else (), store)
    ratios = [
        seconds[cell] / _seconds(stored[cell]) for cell in stored.keys() & seconds.keys() if _seconds(stored[cell])
    ]
    scale = statistics.median(ratios or [1.0])
    for cell in missing & stored.keys():
        last[cell], seconds[cell] = stored[cell], _seconds(stored[cell]) * scale
        sources[cell] = f"{BASELINES} × {scale:.2g}" if ratios else BASELINES
    return History(
        {
            cell: Past(seconds.get(cell, 0.0), sources.get(cell, ""), runs[cell], moved[cell], last.get(cell))
            for cell in {*runs, *last}
        }
    )


def _stored(cells: Iterable[str], store: Store) -> dict[str, Measurement]:
    """The measurements of the readable baselines."""
    measurements = {}
    for cell in cells:
        try:
            baseline = store.load(cell)
        except FileError:
            continue
        if baseline:
            measurements[cell] = baseline.measurement
    return measurements


def _seconds(measurement: Measurement) -> float:
    """Of one launch."""
    return measurement.wall_seconds / (len(measurement.launches) or 1)


def _date(measurement: Measurement) -> str:
    return max([launch.date for launch in measurement.launches] or [""])
