"""The folder for the files of one rank server, trace or emulation. However its processes end, it does not stay.

Whoever works in a workspace has its lock open: the process that made it, and those that get the descriptor. The kernel
frees the lock when the last of them has ended. Every new workspace first removes those that nobody holds. All lie in a
folder that this user alone can enter, below the name of the machine: nodes may share a folder, and on some file systems
a node does not see another one's locks.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perfsuite.system import parts
from perfsuite.system.paths import private_folder, temporary_folder

FOLDER = "work"
LOCK = ".lock"  # in each workspace


class Workspace:
    """A new one in ``folder``, until ``close()``. ``lock`` is the descriptor for other processes that work in it.

    ``kind`` begins its name. ``root`` is this user's own folder, by default among the temporary files. Raises
    UsageError or OSError if it cannot be made.
    """

    def __init__(self, kind: str, root: Path | None = None) -> None:
        here = private_folder((root or temporary_folder()) / FOLDER / _machine(), "TMPDIR")
        with _alone(here) as alone:
            if alone:
                sweep(here)
            self.folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=here))
            self.lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks
                parts.lock(self.lock)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
        self.lock = -1

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _alone(here: Path) -> Iterator[bool]:
    """Inside, no other process makes or removes workspaces there; False on a file system without locks."""
    descriptor = os.open(here / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            parts.lock(descriptor, wait=True)
            alone = True
        except OSError:
            alone = False
        yield alone
    finally:
        os.close(descriptor)


def sweep(here: Path) -> None:
    """Remove the workspaces there whose processes have all ended, those of this user alone.

    Under ``_alone``: one without a lock was left by a process that was killed while it made or removed it.
    """
    for left in here.iterdir():
        with contextlib.suppress(OSError):
            status = os.lstat(left)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                _remove(left)


def _remove(left: Path) -> None:
    """Unless somebody holds it. Raises OSError."""
    try:
        lock = os.open(left / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        shutil.rmtree(left, ignore_errors=True)
        return
    try:
        parts.lock(lock)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)


def _machine() -> str:
    """A short name of this machine: the path of a socket in a workspace has 107 characters at most."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
