"""The files of a script's copy that anything of it has read: ranks, workers, other processes, C++ and Rust code.

A file of the copy has an access time that Linux replaces at its first read, also by ``relatime`` (mount(8)). A file
system that is mounted with ``noatime`` keeps it, so nothing is seen there.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from perfsuite.records.packed import to_record

UNREAD = 0  # nanoseconds: the access time of a file that nobody has read
MOST_FILES = 2_000  # that are named; a folder of data may have many more


def mark_unread(file: Path, original: Path) -> None:
    """Let the first read of a file be seen, and the first use of a link."""
    os.utime(file, ns=(UNREAD, original.lstat().st_mtime_ns), follow_symlinks=False)


def read_in(copy: Path, original: Path) -> list[str]:
    """The original files whose copies were read and not written, and the links that were used."""
    return to_record(map(str, _read(copy, original)), MOST_FILES)


def _read(copy: Path, original: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):  # the script has removed the folder
        for entry in os.scandir(copy):
            place = original / entry.name
            if entry.is_dir(follow_symlinks=False):  # to follow a link would be its first use
                yield from _read(Path(entry.path), place)
            elif _was_read(entry.path, place):
                yield place


def _was_read(copy: str, original: Path) -> bool:
    try:
        here, there = os.lstat(copy), original.lstat()
    except OSError:  # the script has made it, or has just removed it
        return False
    return here.st_atime_ns != UNREAD and here.st_mtime_ns == there.st_mtime_ns
