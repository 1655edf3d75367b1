"""Records as JSON files: read completely or refused with file and field, written completely or not at all."""

import errno
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfsuite.errors import FileError
from perfsuite.records.formats import FORMAT
from perfsuite.records.result import PredictedResult, Result
from perfsuite.wire.record import Record

T = TypeVar("T", bound=Record)
_CELL = re.compile(r"[^-\s]+-[^-\s]+-[^-\s]+(-[a-z]\d+)*")


def encode(record: Record) -> bytes:
    """Indented JSON, so that a baseline reads well in a diff."""
    _refuse_non_finite(msgspec.to_builtins(record), type(record).__name__)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(text: bytes, kind: type[T], where: str) -> T:
    """Raise FileError, naming ``where`` and the field, unless ``text`` is a whole and well-formed ``kind``.

    Control characters in its texts become visible here, where all foreign text comes in: a rank's message, a stranger's
    report.
    """
    try:
        return msgspec.json.decode(_visible(text), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
        article = "an" if name[0] in "aeiou" else "a"
        raise FileError(f"{where} is not {article} {name}: {error}.") from error


class _Head(msgspec.Struct):
    """The field that every format has."""

    format: int


def refuse_newer(text: bytes, where: str, known: int = FORMAT) -> None:
    """Raise FileError for a format that only a later perfsuite knows, before the rest of the text is read.

    A text without a format number is left to the decoder of the whole text, whose error says more.
    """
    try:
        found = msgspec.json.decode(text, type=_Head).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if found > known:
        raise FileError(f"{where} has format {found}, written by a newer perfsuite: upgrade (this knows {known}).")


def read_lines(path: Path, kind: type[T], known: int = FORMAT) -> list[T]:
    """Read one record per line. Raises FileError, naming file and line, for a torn, malformed or newer one."""
    return [decode(line, kind, where) for where, line in _lines(path, known)]


def _lines(path: Path, known: int) -> Iterator[tuple[str, bytes]]:
    """The position of each line, and the line."""
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        refuse_newer(line, f"{path}:{number}", known)
        yield f"{path}:{number}", line


class _Kind(msgspec.Struct):
    """Distinguishes the two kinds of a report's lines."""

    prediction: dict[str, msgspec.Raw] | None = None


def _is_predicted(line: bytes) -> bool:
    """False for a malformed line too: the decoder of the whole line says more."""
    try:
        return msgspec.json.decode(line, type=_Kind).prediction is not None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def read_report(path: Path) -> tuple[list[Result], list[PredictedResult]]:
    """The measured and the predicted cells of a report, as results_of reads them."""
    results = [one for _, one in results_of(path)]
    measured = [one for one in results if isinstance(one, Result)]
    return measured, [one for one in results if isinstance(one, PredictedResult)]


def results_of(path: Path) -> Iterator[tuple[str, Result | PredictedResult]]:
    """The position and the result of each line of a report: every reader of reports reads them here. Raises FileError
    as read_lines does, and for a name that is no cell's. A last line that is cut off is left out (is_cut).
    """
    lines = list(_lines(path, FORMAT))
    for where, line in lines[: len(lines) - is_cut(path)]:
        kind: type[Result | PredictedResult] = PredictedResult if _is_predicted(line) else Result
        one = decode(line, kind, where)
        cell = one.measurement.cell if isinstance(one, Result) else one.prediction.cell
        if not _CELL.fullmatch(cell):  # the model may be in a conftest that is not here, but the form must be right
            raise FileError(f"{where} has a cell named {cell[:80]!r}: write model-strategy-hardware.")
        yield where, one


def is_cut(path: Path) -> bool:
    """Whether the report's last line is the beginning of a JSON object: its run was killed while it wrote. False for a
    file that cannot be read.
    """
    try:
        last = path.read_bytes().rpartition(b"\n")[2]
    except OSError:
        return False
    if not last.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(last.rstrip(b"0123456789.eE+-"), type=msgspec.Raw)  # half a number is no other mistake
    except msgspec.DecodeError as error:
        return "truncated" in str(error)  # msgspec has no class of its own for it
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def read_bytes(path: Path) -> bytes:
    """The file's content. Raises FileError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error


def read(path: Path, kind: type[T]) -> T:
    """Read one record. Raises FileError if the file is missing, torn or malformed."""
    return decode(read_bytes(path), kind, str(path))


def encode_line(record: Record) -> str:
    """The record as one line of JSON."""
    _refuse_non_finite(msgspec.to_builtins(record), type(record).__name__)
    return msgspec.json.encode(record).decode()


def write_lines(path: Path, records: Sequence[Record], there: int) -> None:
    """Write the records as lines, of which the file has the first ``there``; none: it is a new file. A kill leaves the
    lines that were there.
    """
    lines = b"".join(encode_line(one).encode() + b"\n" for one in records[there:])
    if not there:
        write_bytes(path, lines)
        return
    with path.open("ab", buffering=0) as file:
        if file.write(lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write(path: Path, record: Record) -> None:
    """Write a record atomically, indented."""
    write_bytes(path, encode(record))


def write_text(path: Path, text: str) -> None:
    """Write a text atomically. Raises FileError if it cannot be written."""
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of one, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


_ESCAPED = re.compile(rb"(?<!\\)((?:\\\\)*)\\u00((?:[01][0-9a-f])|7f|[89][0-9a-f])", re.IGNORECASE)
_RAW = re.compile(rb"\x7f|\xc2[\x80-\x9f]")  # JSON allows them unescaped


def _visible(text: bytes) -> bytes:
    """The JSON with control characters written out, other than the short forms of line ends and tabs."""
    text = _ESCAPED.sub(rb"\1\\\\x\2", text) if b"\\u00" in text else text
    return _RAW.sub(lambda found: b"\\\\x%02x" % found[0][-1], text)


def _mode(path: Path) -> int:
    """That of the file that is replaced, or what the user's umask leaves to a new one."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _refuse_non_finite(value: Any, where: str) -> None:
    """JSON has no NaN, and an encoder that writes null would turn a broken number into a missing one."""
    if isinstance(value, float) and not math.isfinite(value):
        raise FileError(f"{where} is {value}: only finite numbers can be stored.")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{where}[{index}]")
