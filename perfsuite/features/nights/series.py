"""The rows of many runs as columns: one series for each cell and machine."""

import functools
import gc
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.errors import FileError
from perfsuite.features.nights.row import NightRow, RawRow, read_raw
from perfsuite.records.measurement import releases
from perfsuite.records.verdict import Status

MISSING = math.nan
_NUMBERS, _VERSIONS = msgspec.json.Decoder(dict[str, float]), msgspec.json.Decoder(dict[str, str])


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
    rare: dict[int, NightRow] = field(default_factory=dict)
    environments: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    last: NightRow | None = None
    _versions: bytes = b""

    def add(self, row: RawRow) -> None:
        """Append a night. Raises _OutOfOrder unless it is later than the last; of two rows of one date the first
        counts.
        """
        night = len(self.dates)
        if night and row.date <= self.dates[-1]:
            if row.date == self.dates[-1]:
                return
            raise _OutOfOrder
        self.dates.append(row.date)
        self.commits.append(row.commit)
        numbers, columns = _NUMBERS.decode(row.metrics), self.columns
        for name, number in numbers.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = array("d", [MISSING]) * night
            column.append(number)
        if len(numbers) < len(columns):
            for column in columns.values():
                if len(column) == night:
                    column.append(MISSING)
        versions = bytes(row.versions)
        if versions != self._versions:
            self._versions = versions
            if known := _VERSIONS.decode(versions):
                self.environments.append((night, known))
        if row.status != Status.OK or row.note or row.red or row.trial or row.quarantined:
            self.rare[night] = _whole(row)

    def end(self, row: RawRow) -> None:
        """Keep the last row whole."""
        self.last, self.device, self.kind = _whole(row), row.device or self.device, row.kind

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

    @functools.cached_property
    def _known(self) -> dict[str, tuple[Any, Any]]:
        return {}

    def numbers(self, metric: str) -> tuple[Any, Any]:
        """The nights that have a number, and the numbers, as numpy's arrays."""
        import numpy

        if metric not in self._known:
            column = numpy.frombuffer(self.columns[metric])
            nights = numpy.flatnonzero(~numpy.isnan(column))
            self._known[metric] = nights, column if len(nights) == len(column) else column[nights]
        return self._known[metric]


@dataclass
class CollectedRuns:
    """The series of some cells, by cell and machine. ``last`` is the newest date of every machine, ``libraries`` those
    with a version, also of other cells.
    """

    series: list[Series]
    last: dict[str, str]
    libraries: set[str]


class _OutOfOrder(Exception):
    """The files overlap."""


def collect(files: Sequence[Path], mine: Callable[[str], bool] = lambda cell: True) -> CollectedRuns:
    """The series of the cells that are ``mine``. Raises FileError for a file that cannot be read."""
    collecting = gc.isenabled()
    gc.disable()  # rows form no circles, and there are many
    try:
        return _collect(map(read_raw, sorted(files, key=lambda path: path.name)), mine)
    except _OutOfOrder:  # files overlap: all rows must be sorted
        return _collect([sorted((row for path in files for row in read_raw(path)), key=lambda row: row.key)], mine)
    except msgspec.DecodeError as error:
        raise FileError(f"A line of these files has metrics or versions of another kind: {error}.") from error
    finally:
        if collecting:
            gc.enable()


def _collect(several: Iterable[Sequence[RawRow]], mine: Callable[[str], bool]) -> CollectedRuns:
    found: dict[tuple[str, str], Series] = {}
    last: dict[str, str] = {}
    others: dict[str, bool] = {}
    environments: set[bytes] = set()
    for rows in several:
        ends: dict[tuple[str, str], RawRow] = {}
        for row in rows:
            if row.date > last.get(row.machine, ""):
                last[row.machine] = row.date
            environments.add(bytes(row.versions))
            if (wanted := others.get(row.cell)) is None:
                wanted = others[row.cell] = mine(row.cell)
            if not wanted:
                continue
            key = row.cell, row.machine
            series = found.get(key)
            if series is None:
                series = found[key] = Series(row.cell, row.machine)
            series.add(row)
            ends[key] = row
        for key, row in ends.items():  # not the text of a whole month for each
            found[key].end(row)
    libraries = {name for versions in environments for name in _VERSIONS.decode(versions)}
    return CollectedRuns([found[key] for key in sorted(found)], last, libraries)


def _whole(row: RawRow) -> NightRow:
    """The row with its numbers."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return NightRow(**fields | {"versions": _VERSIONS.decode(row.versions), "metrics": _NUMBERS.decode(row.metrics)})
