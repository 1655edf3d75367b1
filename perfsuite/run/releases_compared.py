"""One cell under two releases, in exact metrics, and the record that is kept of it in a file of one line each."""

import contextlib
import re
import textwrap
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison
from perfsuite.errors import UsageError
from perfsuite.records import codec
from perfsuite.records.change import Change
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.records.verdict import Line, Status
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import A, B, Question
from perfsuite.run.runner import Settings, Watch
from perfsuite.run.sides import sides

Pair = tuple[str, str]  # two releases, as `perfsuite ab` takes its sides
SETTINGS = Settings(steps=3, warmup=1)  # the fewest that every exact metric needs
LONGEST = 500  # characters of a failure's message


class Seen(Record, frozen=True, kw_only=True):
    """What a comparison of one cell found. ``moved`` are lines of a verdict.

    ``status`` is that of `perfsuite ab`, ``outcomes`` those of A and B with the reason of each that did not fit.
    ``seconds`` is what it took once the environments were there. A side that an earlier comparison measured takes none.
    """

    format: int = FORMAT
    cell: str
    a: str
    b: str
    status: Status
    outcomes: tuple[str, str]
    reasons: tuple[str, str] = ("", "")
    moved: list[Line] = []
    changed: list[Change] = []
    seconds: float
    date: str

    def is_of(self, cell: str, pair: Pair) -> bool:
        """Whether it is what these would find."""
        return (self.cell, self.a, self.b) == (cell, *pair)

    def worse(self) -> list[Line]:
        """The metrics that are worse in B, or different, by more than does not matter."""
        quiet = (Status.IMMATERIAL, Status.IMPROVED)
        return [] if self.status == Status.FAILED else [one for one in self.moved if one.status not in quiet]


def is_better(line: Line) -> bool:
    """Whether B needs less. Of an immaterial difference, fewer is better, as in all metrics that have a materiality."""
    if line.status != Status.IMMATERIAL:
        return line.status == Status.IMPROVED
    return (line.change or 0) < 0


def compare_releases(
    pair: Pair,
    cells: Sequence[str],
    catalog: Catalog,
    watch: Watch,
    kept: MutableMapping[tuple[str, str], Measurement],
    settings: Settings = SETTINGS,
) -> Iterator[Seen]:
    """Launch each cell once with each release, unless its measurement is ``kept`` from before, by release and cell. The
    cells share the rank servers of a release.

    An environment that cannot be built, and a cell that a side lacks, are failures with their reason.
    """
    how = Measuring(catalog, settings, Path.cwd(), watch)
    known = {(side, cell): kept[pair[side], cell] for side in (A, B) for cell in cells if (pair[side], cell) in kept}
    try:
        question = Question(how, *sides(pair, catalog, Path.cwd()), cells, known=known)
    except UsageError as error:
        yield from (_failed(cell, pair, error) for cell in cells)
        return
    with contextlib.closing(question):
        for cell in cells:
            begin = time.monotonic()
            try:
                comparison = question.exact(cell)
            except UsageError as error:
                yield _failed(cell, pair, error)
                continue
            kept[pair[A], cell], kept[pair[B], cell] = question.known[A, cell], question.known[B, cell]
            yield of_comparison(comparison, cell, pair, time.monotonic() - begin)


def _failed(cell: str, pair: Pair, error: UsageError) -> Seen:
    """The record of a comparison that could not begin."""
    failed: dict[str, Any] = {"status": Status.FAILED, "outcomes": ("failed", "failed")}
    return _seen(cell, pair, reasons=(sentence(str(error)), ""), seconds=0.0, **failed)


def of_comparison(comparison: Comparison, cell: str, pair: Pair, seconds: float) -> Seen:
    """The record of a comparison."""
    kinds = (Status.REGRESSED, Status.IMPROVED, Status.IMMATERIAL, Status.FAILED)
    moved = [line for line in comparison.verdict.lines if line.status in kinds]
    return _seen(
        cell,
        pair,
        status=comparison.verdict.status,
        outcomes=(comparison.a.outcome, comparison.b.outcome),
        reasons=(_reason(comparison.a), _reason(comparison.b)),
        moved=moved,
        changed=comparison.verdict.changed,
        seconds=round(seconds, 1),
    )


def _seen(cell: str, pair: Pair, **facts: Any) -> Seen:
    """A record of now."""
    return Seen(cell=cell, a=pair[0], b=pair[1], date=timestamp(), **facts)


def _reason(measurement: Measurement) -> str:
    return sentence(measurement.failure.alone) if measurement.failure else ""


def sentence(text: str) -> str:
    """A failure's message on one line, without the folders of the machine. The end of a long one is left out: torch's
    compiler appends the source lines that it was in.
    """
    return textwrap.shorten(re.sub(r"/\S*/(?=[^/\s]+)", "…/", text), LONGEST, placeholder=" …")


def load(path: Path) -> list[Seen]:
    """All records; none if there is no file. Raises FileError for one that is broken."""
    return codec.read_lines(path, Seen) if path.exists() else []


def save(path: Path, records: Iterable[Seen]) -> None:
    """Write the file atomically. Raises FileError."""
    codec.write_text(path, "".join(f"{codec.encode_line(record)}\n" for record in records))


def keep(path: Path, records: Iterable[Seen], new: Seen) -> list[Seen]:
    """Write the file with the new record in the place of an older one of its cell and pair, and return all. They are in
    the order of releases and cells. Raises FileError.
    """
    others = [record for record in records if not record.is_of(new.cell, (new.a, new.b))]
    ordered = sorted([*others, new], key=lambda one: (one.a, one.b, one.cell))
    save(path, ordered)
    return ordered


def find(records: Iterable[Seen], cell: str, pair: Pair) -> Seen | None:
    """The record of that cell and pair."""
    return next((record for record in records if record.is_of(cell, pair)), None)
