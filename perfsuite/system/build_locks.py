"""torch's locks of builds (torch/utils/file_baton.py): a file that a process keeps open while it builds an extension.

One that is killed meanwhile leaves the file, and all later ones would wait for ever.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

LOCKS = "*/lock"
OLD_SECONDS = 3600.0  # no build takes as long; another machine may share the folder


def held(folder: Path, pids: Iterable[int]) -> list[Path]:
    """Those of the folder that these processes of this machine keep open."""
    locks = {str(lock.resolve()): lock for lock in folder.glob(LOCKS)}
    return [locks[target] for pid in (pids if locks else ()) for target in _open_files(pid) if target in locks]


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended, or is somebody else's
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(descriptor.path)


def release(locks: Iterable[Path]) -> None:
    """Remove the locks of processes that were killed."""
    for lock in locks:
        lock.unlink(missing_ok=True)


def release_old(folder: Path) -> None:
    """Remove what killed processes have left long ago."""
    before = time.time() - OLD_SECONDS
    with contextlib.suppress(OSError):  # somebody else removes them, too
        release([lock for lock in folder.glob(LOCKS) if lock.stat().st_mtime < before])
