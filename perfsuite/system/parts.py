"""Files that are written completely or not at all, whatever happens to the process.

A file gets its content in a folder beside it, which git ignores, and then its name. If its process is killed, that
folder stays; no ``git add .`` takes it. The next process that writes into the same place removes it: whoever writes has
its folder locked, and the kernel frees the lock when that process ends.
"""

import contextlib
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX, SUFFIX = ".perfsuite-", ".part"
CONTENT, IGNORE = "content", ".gitignore"


def replace(path: Path, content: bytes) -> None:
    """Let the file have that content: a reader sees the old file or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(path.parent.resolve())
    with _part(path) as part:
        (part / IGNORE).write_text("*\n")
        with (part / CONTENT).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part / CONTENT, _mode(path))
        os.replace(part / CONTENT, path)


@contextlib.contextmanager
def _part(path: Path) -> Iterator[Path]:
    """A locked folder beside the file, until then."""
    while True:
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=PREFIX, suffix=SUFFIX))
        try:
            descriptor = os.open(part, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            with contextlib.suppress(ImportError, OSError):  # a system, or a file system, without locks
                lock(descriptor, wait=True)
            if not part.exists():  # a sweep was faster than the lock
                continue
            try:
                yield part
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return
        finally:
            os.close(descriptor)


@functools.cache
def _sweep_once(folder: Path) -> None:
    """Remove the parts in a folder whose processes have ended."""
    for left in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(ImportError, OSError):
            if {path.name for path in left.iterdir()} <= {CONTENT, IGNORE}:
                descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    lock(descriptor)
                    shutil.rmtree(left, ignore_errors=True)
                finally:
                    os.close(descriptor)


def lock(descriptor: int, wait: bool = False) -> None:
    """Lock an open file. Raises OSError if another process has it, unless it shall ``wait``, or if the file system has
    no locks.
    """
    import fcntl  # missing on Windows, where predictions can still be read

    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _mode(path: Path) -> int:
    """That of the file that is replaced, or what the user's umask leaves to a new one."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
