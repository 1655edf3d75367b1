"""Whether each baseline is the one that the ledger accepted, to the byte.

Every line of the ledger has the digest of the file that it accepted, and of the one before. So a number that was
changed by hand, a file without a line, and a file that was removed by hand are found. What protects the ledger itself
is the review of its changes: each is a line of its own in a diff, with its reason.

A line comes before its file. A process that is killed between the two leaves a line for an acceptance that never
happened: the file still is the one before. Such a line, and one that was cut, is taken back at the next start. A file
beside the ledger says that it was so: a baseline that somebody removed or restored looks alike, and keeps its line.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfsuite.baselines import ledger
from perfsuite.baselines.ledger import LedgerEntry
from perfsuite.errors import FileError


class AcceptanceDoubt(StrEnum):
    """Why a baseline is not believed."""

    EDITED = "edited"  # its content is not what the ledger accepted last
    UNKNOWN = "unknown"  # no line of the ledger has a digest of it
    GONE = "gone"  # the ledger accepted it, and it is not there


@dataclass(frozen=True)
class Doubtful:
    """One baseline, and why it is not believed."""

    path: Path
    doubt: AcceptanceDoubt


def digest_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal; empty if there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def doubtful(files: Iterable[Path], entries: Iterable[LedgerEntry], path_of: ledger.PathOf) -> list[Doubtful]:
    """The files that the ledger does not know as they are, and those that it knows and that are gone."""
    last = {path_of(entry.cell): entry for entry in entries}
    here = set(files)
    doubts = []
    for path in sorted(here):
        entry = last.get(path)
        if entry is None or not entry.digest:
            doubts.append(Doubtful(path, AcceptanceDoubt.UNKNOWN))
        elif digest_of(path) != entry.digest:
            doubts.append(Doubtful(path, AcceptanceDoubt.EDITED))
    doubts += [
        Doubtful(path, AcceptanceDoubt.GONE)
        for path, entry in sorted(last.items())
        if entry.digest and path not in here
    ]
    return doubts


def recover(path: Path, path_of: ledger.PathOf) -> str:
    """Take back what a killed process has left at the end of the ledger: half a line, or a line for an acceptance that
    never happened. Returns what was taken back, for the user; empty if there was nothing. Raises FileError.
    """
    pending = ledger.pending(path)
    if not pending.exists() and not (path.exists() and _ends_badly(path, path_of)):
        return ""
    with ledger.opened(path) as handle:
        ends = _ends_badly(path, path_of)
        if ends:  # no other process was faster
            os.ftruncate(handle, ends[0])
            os.fsync(handle)
        pending.unlink(missing_ok=True)
        return ends[1] if ends else ""


def _ends_badly(path: Path, path_of: ledger.PathOf) -> tuple[int, str] | None:
    """The size of the ledger without its last line, and what that is, if it has to go."""
    *lines, rest = path.read_bytes().split(b"\n")
    size = sum(len(line) + 1 for line in lines)
    if rest:
        return size, f"{path}: its last line was cut off by a process that was killed. It was taken back."
    pending = ledger.pending(path)
    if not lines or not pending.exists() or pending.read_bytes() != lines[-1] + b"\n":
        return None
    try:
        entry = ledger.decode(lines[-1], f"{path}:{len(lines)}")
    except FileError:
        return None  # not of a killed process, which writes a line at once
    if not entry.digest and not entry.before:
        return None  # from before digests were recorded
    now = digest_of(path_of(entry.cell))
    if now == entry.digest or now != entry.before:
        return None
    sentence = (
        f"{path}: the last line accepts {entry.cell}, which never happened: its process was killed. It was taken back."
    )
    return size - len(lines[-1]) - 1, sentence
