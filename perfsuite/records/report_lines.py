"""Reports of ``pytest --perf-report``: a line for each cell of a run, read one by one."""

import functools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfsuite.catalog.cell_id import is_cell_id
from perfsuite.errors import FileError
from perfsuite.records.codec import UNREADABLE, FileLine, FormatHead, checked_head, decode, lines_of, unread
from perfsuite.records.record import Record
from perfsuite.records.result import CellResult, Result, RunBegin, RunEnd
from perfsuite.system import features

INTERRUPTED = 2  # pytest's exit status after Ctrl-C
PARTIAL = 10  # ours, where a limit of time left cells out; pytest's own end with 6

AnyLine = CellResult | RunBegin | RunEnd
_MARK = b'"line"'  # the field that each line of a report has
_TAIL = 2**16  # bytes that are read at once to find a last line


@functools.cache
def _kinds() -> Mapping[str, type[AnyLine]]:
    """The classes of a report's lines by their tags: those of the core, and the results that features bring."""
    kinds = [Result, RunBegin, RunEnd, *(module.RESULT for module in features.modules("result"))]
    return {kind.__struct_config__.tag: kind for kind in kinds}


def _kind_of(head: FormatHead | None) -> type[AnyLine]:
    """A malformed line is called a result: the decoder of the whole line says more."""
    return _kinds().get(head.line, Result) if head and head.line != Result.__struct_config__.tag else Result


@dataclass(frozen=True)
class RunCoverage:
    """What a report has of what was expected. ``known`` is False without a line that counts. ``missing`` are the
    selected tests without a result and without a reason to be skipped; ``exit_status`` is pytest's, None if the run
    never ended.
    """

    known: bool
    selected: int = 0
    missing: tuple[str, ...] = ()
    exit_status: int | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, as far as is known."""
        return not self.known or (self.exit_status is not None and not self.missing)


def coverage_of(path: Path) -> RunCoverage:
    """What the report at that path has of what was expected. Raises FileError as results_of does, but for what is in a
    result.
    """
    begins: list[RunBegin] = []
    ends: list[RunEnd] = []
    tests = set()
    for line in _whole_lines(path):
        kind = _kind_of(line.head)
        if line.head and issubclass(kind, CellResult):
            tests.add(line.head.test)
            continue
        record = decode(line.text, kind, line.where)
        if isinstance(record, RunBegin):
            begins.append(record)
        elif isinstance(record, RunEnd):
            ends.append(record)
    if not begins:
        return RunCoverage(known=bool(tests or ends))
    selected = [test for begin in begins for test in begin.selected]
    skipped = {test: reason for end in ends for test, reason in end.skipped.items()}
    missing = tuple(test for test in selected if test not in tests and test not in skipped)
    ended = len(ends) == len(begins)
    status = max((end.exit_status for end in ends), default=0) if ended else None
    return RunCoverage(True, len(selected), missing, status, skipped)


class LinePlace(NamedTuple):
    """Where a result is: a line of a file. It is shown as FILE:NUMBER."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def read_report(path: Path) -> list[CellResult]:
    """The cells of a report, as results_of reads them: those that were measured, then all others."""
    return sorted((result for _, result in results_of(path)), key=is_measured, reverse=True)


def is_measured(result: CellResult) -> bool:
    """Whether the cell was trained."""
    return isinstance(result, Result)


def read_measured(path: Path) -> list[Result]:
    """Those of them that were measured."""
    return [result for _, result in results_of(path) if isinstance(result, Result)]


def results_of(path: Path) -> Iterator[tuple[LinePlace, CellResult]]:
    """The place and the result of each line of a report, one by one: every reader of reports reads them here. Raises
    FileError as read_lines does, and for a name that is no cell's. A last line that is cut off is left out (is_cut).
    """
    kept = set(
        _final((_kind_of(line.head) is RunBegin, line.head.test if line.head else "") for line in _whole_lines(path))
    )
    for place, record in _records(path):
        if place.line - 1 not in kept or not isinstance(record, CellResult):
            continue
        for cell in (record.cell, record.verdict.cell):
            if not is_cell_id(cell):  # the model may be in a conftest that is not here, but the form must be right
                raise FileError(f"{place} has a cell named {cell[:80]!r}: write model-strategy-hardware.")
        yield place, record


def results_at(places: Iterable[LinePlace]) -> dict[LinePlace, CellResult]:
    """The results at places that results_of has told."""
    wanted = set(places)
    read = (one for path in {place.path for place in wanted} for one in _records(path, wanted))
    return {place: record for place, record in read if isinstance(record, CellResult)}


def final(records: Sequence[Record]) -> list[Record]:
    """The lines of a report without those of open cells that a later line of the same run and test replaces."""
    kinds = ((isinstance(one, RunBegin), one.test if isinstance(one, CellResult) else "") for one in records)
    return [records[number] for number in _final(kinds)]


def _final(lines: Iterable[tuple[bool, str]]) -> list[int]:
    """The numbers of those that stay; of each, whether it begins a run, and the test that it is of."""
    runs, last = 0, dict[tuple[int, str], int]()
    for number, (begins, test) in enumerate(lines):
        runs += begins
        last[runs, test or str(number)] = number
    return sorted(last.values())


def _records(path: Path, wanted: Container[LinePlace] | None = None) -> Iterator[tuple[LinePlace, AnyLine]]:
    """All lines, or those that are wanted."""
    for number, line in enumerate(_whole_lines(path), 1):
        place = LinePlace(path, number)
        if wanted is None or place in wanted:
            yield place, decode(line.text, _kind_of(line.head), line.where)


def _whole_lines(path: Path) -> Iterator[FileLine]:
    """All but a last one that is cut off. Raises FileError for a file that is no report."""
    cut, before = is_cut(path), None
    if not cut and not _may_be_report(path):
        for _ in lines_of(path):  # one of a newer format says so
            pass
        raise FileError(f"{path} is not a report: name a file that pytest --perf-report=FILE.jsonl has written.")
    for line in lines_of(path):
        if before:
            yield before
        before = line
    if before and not cut:
        yield before


def _may_be_report(path: Path) -> bool:
    """Whether it is empty, or a line of it has the mark; nearly always the first one has."""
    try:
        with path.open("rb") as file:
            return not path.stat().st_size or any(_MARK in line for line in file)
    except OSError as error:
        raise unread(path, error) from error


def decode_line(line: bytes, where: str) -> AnyLine:
    """A line of a report, of whatever kind. Raises FileError as ``decode`` does."""
    return decode(line, _kind_of(checked_head(line, where)), where)


def is_cut(path: Path) -> bool:
    """Whether the report's last line is the beginning of a JSON object: its run was killed while it wrote. False for a
    file that cannot be read.
    """
    try:
        last = _last_line(path)
    except OSError:
        return False
    if not last.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(last.rstrip(b"0123456789.eE+-"), type=msgspec.Raw)  # half a number is no other mistake
    except UNREADABLE as error:
        return "truncated" in str(error)  # msgspec has no class of its own for it
    return False


def _last_line(path: Path) -> bytes:
    """What follows the last line end. Raises OSError."""
    last, size = b"", path.stat().st_size
    with path.open("rb") as file:
        while size and b"\n" not in last:
            size -= (step := min(size, _TAIL))
            file.seek(size)
            last = file.read(step) + last
    return last.rpartition(b"\n")[2]
