"""Records as JSON files: read completely or refused with file and field, written completely or not at all."""

import contextlib
import errno
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfsuite.catalog.cell_id import is_cell_id
from perfsuite.errors import FileError
from perfsuite.records.formats import FORMAT
from perfsuite.records.record import Record
from perfsuite.records.result import CellResult, Result, RunBegin, RunEnd
from perfsuite.system import features
from perfsuite.system.parts import replace

T = TypeVar("T", bound=Record)
INTERRUPTED = 2  # pytest's exit status after Ctrl-C
PARTIAL = 10  # ours, where a limit of time left cells out; pytest's own end with 6
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises for a text that is none
MOST_DIGITS = 2 * 50 + 3  # before an exponent, with sign, point and what is before the number: longer ones are found
LARGEST = 1e100  # a number in a file: sums, ratios and squares of such numbers are floats, and float32 ends at 3.4e38


def encode(record: Record) -> bytes:
    """Indented JSON, so that a baseline reads well in a diff."""
    _refuse_non_finite(record)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(text: bytes, kind: type[T], where: str) -> T:
    """Raise FileError, naming ``where`` and the field, unless ``text`` is a whole and well-formed ``kind``.

    No number of it is beyond LARGEST, so no reader's arithmetic overflows.

    Control characters in its texts become visible here, where all foreign text comes in: a rank's message, a stranger's
    report.
    """
    try:
        record = msgspec.json.decode(_visible(text), type=kind)
        refuse_huge(text)
        return record
    except UNREADABLE as error:
        name = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).strip()
        article = "an" if name[0] in "aeiou" else "a"
        raise FileError(f"{where} is not {article} {name}: {error}.") from error


_ALIKE, _LONG = bytes.maketrans(b"123456789E", b"000000000e"), b"0" * 50  # digits, of which a number is huge
_EXPONENTS = b"0e00", b"0e+00"  # what a huge exponent is alike; digests have such letters too
_HUGE = re.compile(rb"[eE]\+?0*(?:[5-9]\d|[1-9]\d\d)")
_BEFORE = re.compile(rb"[:\[,\s]-?\d+(?:\.\d+)?\Z")


def refuse_huge(text: bytes) -> None:
    """Raise msgspec's ValidationError for a number beyond LARGEST in JSON. Few texts need the slow search for it."""
    alike = text.translate(_ALIKE)
    if _LONG in alike or any(
        _HUGE.match(text, place) and _BEFORE.search(text, max(0, place - MOST_DIGITS), place)
        for place in _exponents(alike)
    ):
        check_numbers(msgspec.json.decode(text))


def _exponents(alike: bytes) -> Iterator[int]:
    """Where perhaps an exponent is. To find bytes takes a tenth of the time of a regular expression."""
    for mark in _EXPONENTS:
        place = alike.find(mark)
        while place >= 0:
            yield place + 1
            place = alike.find(mark, place + 1)


def check_numbers(value: Any) -> None:
    """Raise msgspec's ValidationError for a number in decoded JSON that is beyond LARGEST, infinite or NaN."""
    for where, number in _numbers(value, "$"):
        if not abs(number) <= LARGEST:
            raise msgspec.ValidationError(f"Number out of range - at `{where}`")


def _refuse_non_finite(record: Record) -> None:
    """JSON has no NaN, and an encoder that writes null would turn a broken number into a missing one."""
    for where, number in _numbers(msgspec.to_builtins(record), type(record).__name__):
        if isinstance(number, float) and not math.isfinite(number):
            raise FileError(f"{where} is {number}: only finite numbers can be stored.")


def _numbers(value: Any, where: str) -> Iterator[tuple[str, int | float]]:
    """Every number in nested dictionaries and lists, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{where}[{index}]")
    elif isinstance(value, int | float):
        yield where, value


class _Head(msgspec.Struct):
    """The field that every format has, and those by which lines of a report are told apart without the rest."""

    format: int
    line: str = ""
    test: str = ""


def check_format(text: bytes, where: str) -> None:
    """Raise FileError for a format that this perfsuite does not know, before the rest of the text is read.

    A text without a format number is left to the decoder of the whole text, whose error says more.
    """
    _checked_head(text, where)


def _checked_head(text: bytes, where: str) -> _Head | None:
    """None if there is none; the decoder of the whole text says why."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except UNREADABLE:
        return None
    found = head.format
    if FORMAT < found < LARGEST:
        raise FileError(f"{where} has format {found}, written by a newer perfsuite: upgrade (this knows {FORMAT}).")
    if found < FORMAT:
        raise FileError(f"{where} has format {found}, which no perfsuite has written (this knows {FORMAT}).")
    return head


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Read one record per line. Raises FileError, naming file and line, for a torn, malformed or newer one."""
    return [decode(line.text, kind, line.where) for line in _lines(path)]


@dataclass(frozen=True)
class _Line:
    """Its position as FILE:NUMBER, and its text. ``head`` is None if it is malformed."""

    where: str
    text: bytes
    head: _Head | None


def _lines(path: Path) -> Iterator[_Line]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                where = f"{path}:{number}"
                yield _Line(where, text, _checked_head(text, where))
    except OSError as error:
        raise _unread(path, error) from error


AnyLine = CellResult | RunBegin | RunEnd
_MARK = b'"line"'  # the field that each line of a report has
_TAIL = 2**16  # bytes that are read at once to find a last line


@functools.cache
def _kinds() -> Mapping[str, type[AnyLine]]:
    """The classes of a report's lines by their tags: those of the core, and the results that features bring."""
    kinds = [Result, RunBegin, RunEnd, *(module.RESULT for module in features.modules("result"))]
    return {kind.__struct_config__.tag: kind for kind in kinds}


def _kind_of(head: _Head | None) -> type[AnyLine]:
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


def read_report(path: Path) -> list[CellResult]:
    """The cells of a report, as results_of reads them: those that were measured, then all others."""
    return sorted((result for _, result in results_of(path)), key=is_measured, reverse=True)


def is_measured(result: CellResult) -> bool:
    """Whether the cell was trained."""
    return isinstance(result, Result)


def read_measured(path: Path) -> list[Result]:
    """Those of them that were measured."""
    return [one for one in read_report(path) if isinstance(one, Result)]


def results_of(path: Path) -> Iterator[tuple[str, CellResult]]:
    """The position and the result of each line of a report: every reader of reports reads them here. Raises FileError
    as read_lines does, and for a name that is no cell's. A last line that is cut off is left out (is_cut).
    """
    records = list(_records(path))
    known = {id(one) for one in final([record for _, record in records])}
    for where, record in records:
        if isinstance(record, RunBegin | RunEnd) or id(record) not in known:
            continue
        for cell in (record.cell, record.verdict.cell):
            if not is_cell_id(cell):  # the model may be in a conftest that is not here, but the form must be right
                raise FileError(f"{where} has a cell named {cell[:80]!r}: write model-strategy-hardware.")
        yield where, record


def final(records: Sequence[T]) -> list[T]:
    """The lines of a report without those of open cells that a later line of the same run and test replaces."""
    runs, last = 0, dict[tuple[int, str], int]()
    for number, record in enumerate(records):
        runs += isinstance(record, RunBegin)
        test = record.test if isinstance(record, CellResult) else ""
        last[runs, test or str(number)] = number
    return [records[number] for number in sorted(last.values())]


def _records(path: Path) -> Iterator[tuple[str, AnyLine]]:
    for line in _whole_lines(path):
        yield line.where, decode(line.text, _kind_of(line.head), line.where)


def _whole_lines(path: Path) -> Iterator[_Line]:
    """All but a last one that is cut off. Raises FileError for a file that is no report."""
    cut, before = is_cut(path), None
    if not cut and not _may_be_report(path):
        for _ in _lines(path):  # one of a newer format says so
            pass
        raise FileError(f"{path} is not a report: name a file that pytest --perf-report=FILE.jsonl has written.")
    for line in _lines(path):
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
        raise _unread(path, error) from error


def decode_line(line: bytes, where: str) -> AnyLine:
    """A line of a report, of whatever kind. Raises FileError as ``decode`` does."""
    return decode(line, _kind_of(_checked_head(line, where)), where)


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


def read_bytes(path: Path) -> bytes:
    """The file's content. Raises FileError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: OSError) -> FileError:
    return FileError(f"{path} cannot be read: {error.strerror}.")


def read(path: Path, kind: type[T]) -> T:
    """Read one record. Raises FileError if the file is missing, torn, malformed or of another format."""
    text = read_bytes(path)
    check_format(text, str(path))
    return decode(text, kind, str(path))


def read_kept(path: Path, kind: type[T]) -> T | None:
    """Of the cache folder: None if there is none, or it is torn or of another format, and will be made anew."""
    try:
        return read(path, kind) if path.is_file() else None
    except FileError:
        return None


def encode_line(record: Record) -> str:
    """The record as one line of JSON."""
    _refuse_non_finite(record)
    return msgspec.json.encode(record).decode()


def write_lines(path: Path, records: Sequence[Record], there: int) -> None:
    """Write the records as lines, of which the file has the first ``there``; none: it is a new file. A kill leaves the
    lines that were there.
    """
    lines = b"".join(encode_line(record).encode() + b"\n" for record in records[there:])
    if not there:
        write_bytes(path, lines)
        return
    with path.open("ab", buffering=0) as file:
        if file.write(lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write(path: Path, record: Record) -> None:
    """Write a record atomically, indented."""
    write_bytes(path, encode(record))


def keep(path: Path, record: Record) -> None:
    """Write a record into the cache folder; one that cannot be written, or is full, keeps nothing."""
    with contextlib.suppress(OSError):
        write(path, record)


def write_text(path: Path, text: str) -> None:
    """Write a text atomically. Raises FileError if it cannot be written."""
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of one, even after a crash."""
    replace(path, content)


_ESCAPED = re.compile(rb"(?<!\\)((?:\\\\)*)\\u00((?:[01][0-9a-f])|7f|[89][0-9a-f])", re.IGNORECASE)
_RAW = re.compile(rb"\x7f|\xc2[\x80-\x9f]")  # JSON allows them unescaped


def _visible(text: bytes) -> bytes:
    """The JSON with control characters written out, other than the short forms of line ends and tabs."""
    text = _ESCAPED.sub(rb"\1\\\\x\2", text) if b"\\u00" in text else text
    if b"\x7f" not in text and b"\xc2" not in text:
        return text
    return _RAW.sub(lambda match: b"\\\\x%02x" % match[0][-1], text)
