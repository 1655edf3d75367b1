"""What earlier runs tell about a cell: what it costs, how often it moved, and what it imported.

From reports of ``pytest --perf-report`` if they are given, and else from the baselines and their ledger.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.errors import FileError
from perfsuite.gate import ledger
from perfsuite.gate.judge import RED
from perfsuite.gate.store import Store
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement


@dataclass(frozen=True)
class Past:
    """``seconds`` is the cost of the last run, 0 if it is not known. Of ``runs`` records, the cell ``moved`` in some:
    it was red, or a change of it was accepted. ``measurement`` is the last one.
    """

    seconds: float = 0.0
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


def read_history(cells: Iterable[str], store: Store, reports: Iterable[Path] = ()) -> History:
    """Raises FileError for a report or a ledger that cannot be read. An unreadable baseline is no record: it is
    reported when its cell is measured.
    """
    runs: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    last: dict[str, Measurement] = {}
    for entry in ledger.read(store.ledger)[0]:
        runs[entry.cell] += 1
        moved[entry.cell] += entry.change == "changed" and not entry.consent.endswith("times")
    results = [result for path in reports for result in codec.read_report(path)[0]]
    for result in sorted(results, key=lambda result: _date(result.measurement)):
        cell = result.measurement.cell
        runs[cell] += 1
        moved[cell] += result.verdict.status in RED
        if result.measurement.readings:
            last[cell] = result.measurement
            seconds[cell] = result.seconds or _seconds(result.measurement)
    for cell in set(cells) - last.keys():
        try:
            baseline = store.load(cell)
        except FileError:
            continue
        if baseline:
            last[cell], seconds[cell] = baseline.measurement, _seconds(baseline.measurement)
    known = {*runs, *last}
    return History({cell: Past(seconds.get(cell, 0.0), runs[cell], moved[cell], last.get(cell)) for cell in known})


def _seconds(measurement: Measurement) -> float:
    """Of one launch."""
    return measurement.wall_seconds / (len(measurement.launches) or 1)


def _date(measurement: Measurement) -> str:
    return max([launch.date for launch in measurement.launches] or [""])
