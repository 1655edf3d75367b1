"""What is built once and kept in the cache folder: completely or not at all, and by one process at a time."""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from perfsuite.errors import UsageError
from perfsuite.system.deadline import check, look
from perfsuite.system.paths import cache_folder, check_executable

LOCK_SECONDS = 60.0  # of one wait for another process that builds
DIGESTS = "digests.json"  # beside compiled files: the SHA-256 of each


def kept(
    kind: str, follows_from: Sequence[str], build: Callable[[Path], None], whole: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """The folder of that kind, built now if it is missing or not ``whole``.

    Raises UsageError if it must be built and the cache folder cannot be written.
    """
    root = cache_folder() / kind
    folder = root / hashlib.sha256("\n".join(follows_from).encode()).hexdigest()[:16]
    if whole(folder):  # perhaps in a cache that cannot be written
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if not whole(folder):
                _build(folder, build)
    except OSError as error:
        raise UsageError(
            f"perfsuite's cache folder {root} cannot be written: {error.strerror or error}. "
            "Let XDG_CACHE_HOME name another folder."
        ) from error
    return folder


def compiled(
    kind: str,
    follows_from: Sequence[str],
    build: Callable[[Path], None],
    loads: Callable[[Path], bool] = lambda folder: True,
) -> Path:
    """As ``kept``, for compiled code of this architecture and C library. It is on the disk before it has its name. A
    file that is not as it was built, or does not load, is built again: a full disk or a copied cache left it.

    Raises UsageError if nothing can be loaded from the cache folder.
    """
    check_executable(cache_folder())

    def complete(folder: Path) -> None:
        build(folder)
        (folder / DIGESTS).write_text(json.dumps(_digests(folder), indent=1))
        for path in (*folder.rglob("*"), folder):
            if not path.is_symlink():
                _sync(path)

    here = [platform.machine(), *platform.libc_ver()]
    return kept(kind, [*here, *follows_from], complete, lambda folder: _unchanged(folder) and loads(folder))


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    for left in (folder, *folder.parent.glob(f"{folder.name}.*.part")):  # parts by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.", suffix=".part"))
    try:
        build(part / "whole")
        os.rename(part / "whole", folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _unchanged(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / DIGESTS).read_bytes()) == _digests(folder))
    except (OSError, ValueError):
        return False


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != DIGESTS
    }


def _sync(path: Path) -> None:
    """Wait until the file, or the folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if path.is_file():  # some file systems cannot do it with folders
            raise
    finally:
        os.close(descriptor)


def _locked(folder: Path) -> contextlib.AbstractContextManager[object]:
    """A lock beside the folder, as soon as no other process builds it."""
    lock = FileLock(f"{folder}.lock")
    while True:
        check()
        with contextlib.suppress(Timeout):
            return lock.acquire(timeout=min(LOCK_SECONDS, look()))
