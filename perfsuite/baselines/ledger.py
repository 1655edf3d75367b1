"""The ledger: ``baselines/ledger.jsonl``, one line for every change of a baseline, oldest first, never rewritten.

Each line says who accepted what change: the consent, the reason, the versions that changed, and each compared metric's
old and new value. Only the ledger shows a baseline that gets 1 % worse every month.

Format history of a line
    3   2026-11   each change of a version as a record, not as a text
    2   2026-11   the digests of the file that it accepts, and of the one before
    1   2026-11   first
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.judge import what_changed
from perfsuite.compare.machines import why_other_machine
from perfsuite.compare.rules import rule_of
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.change import Change
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.system.changing import changing

NAME = "ledger.jsonl"
ATTRIBUTES = ".gitattributes"
UNION = "# Two branches that both accept baselines add lines to the ledger: keep both.\nledger*.jsonl merge=union\n"
PathOf = Callable[[str], Path]  # of a cell's baseline


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Why a baseline may change: ``how`` it was accepted, the reason, and the metrics whose values are recorded.

    ``commit`` is the tree's when a baseline is removed; a new one has its own.
    """

    how: str
    metrics: Sequence[Metric]
    reason: str = ""
    commit: str = ""


class Magnitude(Record, frozen=True, kw_only=True):
    """The accepted change of one metric. ``ratio`` is new / old; None if one is missing, zero or of the opposite sign,
    and for a time of another machine or driver.
    """

    old: int | float | None
    new: int | float | None
    ratio: float | None


class LedgerEntry(Record, frozen=True, kw_only=True):
    """One ``change`` of a baseline: "new", "changed", "removed" or "adopted". ``outcome`` is the written or removed
    one's. ``digest`` is the SHA-256 of its file, empty if it is removed, and ``before`` that of the file before.
    """

    format: int = FORMAT
    date: str
    cell: str
    change: str
    consent: str
    reason: str
    outcome: str
    changed: list[Change]
    metrics: dict[str, Magnitude]
    commit: str
    digest: str = ""
    before: str = ""


def magnitudes(old: Measurement | None, new: Measurement | None, metrics: Iterable[Metric]) -> dict[str, Magnitude]:
    """Every compared metric that either of the two has."""
    found = {}
    for metric in metrics:
        before, after = (side.readings.get(metric.name) if side else None for side in (old, new))
        if rule_of(metric).has_limit and (before or after):
            other_machine = old and new and metric.is_time and why_other_machine(old.machine, new.machine)
            values = (before.value if before else None, after.value if after else None)
            ratio = None if other_machine else _ratio(*values)
            found[metric.name] = Magnitude(old=values[0], new=values[1], ratio=ratio)
    return found


def entry_of(
    old: Baseline | None, new: Baseline | None, consent: Acceptance, digest: str = "", before: str = ""
) -> LedgerEntry:
    """The line for a baseline that is written (no ``old``: a new one) or removed (no ``new``)."""
    baseline = new or old
    assert baseline is not None
    return LedgerEntry(
        date=timestamp(),
        cell=baseline.cell,
        change="removed" if new is None else "new" if old is None else "changed",
        consent=consent.how,
        reason=consent.reason,
        outcome=baseline.measurement.outcome,
        changed=[*what_changed(new.measurement, old.measurement)] if new and old else [],
        metrics=magnitudes(old.measurement if old else None, new.measurement if new else None, consent.metrics),
        commit=new.commit if new else consent.commit,
        digest=digest,
        before=before,
    )


@contextlib.contextmanager
def entered(path: Path, entry: LedgerEntry) -> Iterator[None]:
    """Append the line for what is done inside; if that fails, remove the line again. Other writers wait until then.

    The line comes first, so no baseline ever changes without one. Until all is done, a file beside the ledger has the
    line too: only that says that a process was killed in between. If the ledger cannot be written or its last line is
    torn, raises FileError before anything is done.
    """
    line = codec.encode_line(entry).encode() + b"\n"
    with opened(path) as handle:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = path.read_bytes().count(b"\n")
            raise FileError(f"{_torn(path, lines + 1)} Nothing was changed: repair it first.")
        try:
            try:
                pending(path).write_bytes(line)
                written = os.write(handle, line)  # at once, at the end: O_APPEND
                os.fsync(handle)
            except OSError as error:
                raise FileError(f"{path} cannot be written: {error.strerror}.") from error
            if written != len(line):
                raise FileError(f"{path} cannot be written: only {written} of {len(line)} bytes were written.")
            yield
        except BaseException:
            os.ftruncate(handle, size)
            if not size:
                path.unlink()
            raise
        finally:
            pending(path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            let_git_merge(path.parent)


def let_git_merge(folder: Path) -> None:
    """Let git keep both sides if two branches add lines to a ledger of the folder. A folder whose attributes already
    mention ledgers stays as it is. Raises OSError.
    """
    attributes = folder / ATTRIBUTES
    text = attributes.read_text() if attributes.exists() else ""
    if "ledger" not in text:
        codec.write_bytes(attributes, (text + ("" if text.endswith("\n") or not text else "\n") + UNION).encode())


def pending(path: Path) -> Path:
    """The file with the line of what is being done. It stays if its process is killed."""
    return path.with_name(f"{path.name}.pending")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Locked against all writers of this user on this machine. Raises FileError."""
    try:
        with changing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                yield handle
            finally:
                os.close(handle)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def read(path: Path, cell: str = "") -> tuple[list[LedgerEntry], str]:
    """Every whole line, or those of a ``cell``, and a sentence that names file and line of the first damaged one; empty
    if all are whole.

    A bad line does not hide the others. Raises FileError for a file that cannot be read at all.
    """
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    entries: list[LedgerEntry] = []
    problem = ""
    for number, line in enumerate(lines, 1):
        if cell.encode() not in line:
            continue
        try:
            entry = decode(line, f"{path}:{number}")
            entries += [entry] if cell in ("", entry.cell) else []
        except FileError as error:
            problem = problem or str(error)
    return entries, problem or (_torn(path, len(lines) + 1) if rest else "")


def decode(line: bytes, where: str) -> LedgerEntry:
    codec.check_format(line, where)
    entry = codec.decode(line, LedgerEntry, where)
    for name, magnitude in entry.metrics.items():
        if magnitude.ratio is not None and not 0 < magnitude.ratio < math.inf:
            raise FileError(f"{where} is damaged: metrics.{name}.ratio is {magnitude.ratio}, but a ratio is above 0.")
    return entry


def _torn(path: Path, number: int) -> str:
    return f"{path}:{number} is torn: the line has no line end."


def _ratio(old: int | float | None, new: int | float | None) -> float | None:
    if old is None or new is None:
        return None
    if old == new:
        return 1.0
    if old == 0 or new == 0 or (old < 0) != (new < 0):
        return None
    ratio = new / old
    return ratio if 0 < ratio < math.inf else None
