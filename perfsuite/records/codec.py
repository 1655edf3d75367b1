"""Records as JSON files: read completely or refused with file and field, written completely or not at all."""

import contextlib
import errno
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfsuite.errors import FileError
from perfsuite.records.formats import FORMAT
from perfsuite.records.record import Record
from perfsuite.system.parts import replace

T = TypeVar("T", bound=Record)
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


class FormatHead(msgspec.Struct):
    """The field that every format has, and those by which lines of a report are told apart without the rest."""

    format: int
    line: str = ""
    test: str = ""


def check_format(text: bytes, where: str) -> None:
    """Raise FileError for a format that this perfsuite does not know, before the rest of the text is read.

    A text without a format number is left to the decoder of the whole text, whose error says more.
    """
    checked_head(text, where)


def checked_head(text: bytes, where: str) -> FormatHead | None:
    """None if there is none; the decoder of the whole text says why."""
    try:
        head = msgspec.json.decode(text, type=FormatHead)
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
    return [decode(line.text, kind, line.where) for line in lines_of(path)]


@dataclass(frozen=True)
class FileLine:
    """Its position as FILE:NUMBER, and its text. ``head`` is None if it is malformed."""

    where: str
    text: bytes
    head: FormatHead | None


def lines_of(path: Path) -> Iterator[FileLine]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                where = f"{path}:{number}"
                yield FileLine(where, text, checked_head(text, where))
    except OSError as error:
        raise unread(path, error) from error


def read_bytes(path: Path) -> bytes:
    """The file's content. Raises FileError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unread(path, error) from error


def unread(path: Path, error: OSError) -> FileError:
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
