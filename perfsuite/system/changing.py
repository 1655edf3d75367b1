"""The lock of whoever reads a file, changes what it read and writes it again.

Without it, the last of two writers removes what the other one added. The lock is in a folder of the user's own: on the
file itself, whoever may read the repository could hold one for ever.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from perfsuite.errors import FileError
from perfsuite.system.paths import runtime_folder

LOCK_SECONDS = 60.0


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Inside, no other process of this user on this machine changes the file. Raises FileError if one does for long."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    lock = FileLock(runtime_folder() / f"{path.stem}-{name}.lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        text = f"{path} is locked by another perfsuite of yours since {LOCK_SECONDS:g} s: {lock.lock_file}."
        raise FileError(f"{text} End it, and try again.") from error
    except OSError as error:
        raise FileError(f"{lock.lock_file} cannot be written: {error.strerror}.") from error
    try:
        yield
    finally:
        lock.release()
