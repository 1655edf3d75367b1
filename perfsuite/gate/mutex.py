"""Locks of files that several processes write. The lock files are outside the repository."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from perfsuite.errors import FileError

LOCK_SECONDS = 60.0  # a writer holds the lock for milliseconds


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of this file out. Raises FileError if one does not finish."""
    folder = Path(tempfile.gettempdir()) / f"perfsuite-locks-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    key = hashlib.sha256(bytes(path.resolve())).hexdigest()[:24]
    lock = FileLock(folder / f"{key}.lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise FileError(f"{path} has been locked by another writer for more than {LOCK_SECONDS:g} s.") from error
    try:
        yield
    finally:
        lock.release()
