"""The rows of many runs as columns: one series for each cell and machine."""

import gc
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.nights.row import Row, read
from perfsuite.records.measurement import releases

MISSING = math.nan


@dataclass
class Series:
    """One cell on one machine, oldest night first. ``columns`` have one number per night, `MISSING` for none.

    ``rare`` has the rows that say more than numbers, by their night: red ones, failures, trials. ``environments`` are
    the nights from which on the versions are others.
    """

    cell: str
    machine: str
    device: str = ""
    kind: str = "measured"
    dates: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    columns: "dict[str, array[float]]" = field(default_factory=dict)
    rare: dict[int, Row] = field(default_factory=dict)
    environments: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    last: Row | None = None

    def add(self, row: Row) -> None:
        """Append a night. Nights must come in order; of two rows of one date the first counts."""
        night = len(self.dates)
        if night and row.date <= self.dates[-1]:
            if row.date == self.dates[-1]:
                return
            raise ValueError("nights are out of order")
        self.dates.append(row.date)
        self.commits.append(row.commit)
        for name, number in row.metrics.items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = array("d", [MISSING]) * night
            column.append(number)
        if len(row.metrics) < len(self.columns):
            for column in self.columns.values():
                if len(column) == night:
                    column.append(MISSING)
        if row.versions and (not self.environments or self.environments[-1][1] != row.versions):
            self.environments.append((night, row.versions))
        if row.note or row.red or row.trial or row.quarantined or row.status not in ("ok", "improved"):
            self.rare[night] = row
        self.last, self.device, self.kind = row, row.device or self.device, row.kind

    def releases(self) -> list[tuple[int, dict[str, tuple[str, str]]]]:
        """The nights with other releases than the night before: (night, library -> old and new)."""
        found, known = [], releases(self.environments[0][1]) if self.environments else {}
        for night, versions in self.environments[1:]:
            new = releases(versions)
            moved = {
                name: (known.get(name, ""), new.get(name, ""))
                for name in sorted(known.keys() | new.keys())
                if known.get(name) != new.get(name)
            }
            if moved:
                found.append((night, moved))
            known = new
        return found

    def numbers(self, metric: str) -> tuple[list[int], list[float]]:
        """The nights that have a number, and the numbers."""
        column = self.columns[metric]
        nights = [night for night, number in enumerate(column) if number == number]  # NaN differs from itself
        return nights, column.tolist() if len(nights) == len(column) else [column[night] for night in nights]


def collect(files: Sequence[Path]) -> list[Series]:
    """All series of these files, by cell and machine. Raises FileError for a file that cannot be read."""
    found: dict[tuple[str, str], Series] = {}
    collecting = gc.isenabled()
    gc.disable()  # rows form no circles, and there are many
    try:
        for path in sorted(files, key=lambda path: path.name):
            _add(found, read(path))
    except ValueError:  # files overlap: all rows must be sorted
        found.clear()
        _add(found, sorted((row for path in files for row in read(path)), key=lambda row: row.key))
    finally:
        if collecting:
            gc.enable()
    return [found[key] for key in sorted(found)]


def _add(found: dict[tuple[str, str], Series], rows: Iterable[Row]) -> None:
    for row in rows:
        key = row.cell, row.machine
        series = found.get(key)
        if series is None:
            series = found[key] = Series(row.cell, row.machine)
        series.add(row)
