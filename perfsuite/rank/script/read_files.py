"""The files of a script's copy that anything of it has read: ranks, workers, other processes, C++ and Rust code.

A file of the copy has an access time that Linux replaces at its first read, also by ``relatime`` (mount(8)). A file
system that is mounted with ``noatime`` keeps it, so nothing is seen there.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from perfsuite.records.packed import to_record

UNREAD = 0  # nanoseconds: the access time of a file that nobody has read
MOST_FILES = 2_000  # that are named; a folder of data may have many more


def mark_unread(file: Path) -> None:
    """Let the first read of a file be seen."""
    os.utime(file, ns=(UNREAD, file.stat().st_mtime_ns), follow_symlinks=False)


def read_in(copy: Path, original: Path) -> list[str]:
    """The original files whose copies were read and not written."""
    return to_record(map(str, _read(copy, original)), MOST_FILES)


def _read(copy: Path, original: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(copy):
        for name in names:
            place = original / Path(folder, name).relative_to(copy)
            try:
                here, there = os.lstat(os.path.join(folder, name)), place.lstat()
            except OSError:  # the script has made it, or has just removed it
                continue
            if here.st_atime_ns != UNREAD and here.st_mtime_ns == there.st_mtime_ns and not place.is_symlink():
                yield place
