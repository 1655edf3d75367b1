"""Folders and files outside of the repository: the cache, locks, and the files that options name.

What perfsuite loads code from, or takes locks in, is in folders that only this user can enter. In a folder of the
system's temporary files, another user could have been first.
"""

import contextlib
import getpass
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.system.build_locks import release_old

NAME = "perfsuite"
PACKAGE = Path(__file__).resolve().parents[1]  # perfsuite itself
# The variables of the folders from which torch and its extensions load compiled code, with their names in our cache.
EXTENSIONS = "TORCH_EXTENSIONS_DIR"
CODE_FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    EXTENSIONS: "torch_extensions",
}
# Folders that no copy of a user's files has; virtual environments are left out too.
LEFT_OUT = (".git", ".hg", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache")
# Of files that decide what code does: the code, the facts that it reads, and what it compiles.
CODE_SUFFIXES = {".py", ".toml", ".c", ".cpp", ".h"}
# A socket's path has 107 bytes (unix(7)), of which multiprocessing needs 32: /pymp-XXXXXXXX/listener-XXXXXXXX.
MOST_BYTES = 107 - 32


def code_files(place: Path) -> list[Path]:
    """The files of a folder that decide what its code does, in the order of their names; or the file itself."""
    return sorted(path for path in place.rglob("*") if path.suffix in CODE_SUFFIXES) if place.is_dir() else [place]


def content_hash(files: Iterable[Path]) -> str:
    """A hash of what the files contain, in hex digits."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def is_left_out(place: Path) -> bool:
    """Whether a copy of the user's files lacks this folder, or this file: a worktree's .git is one. So is our folder of
    temporary files, where TMPDIR is in the repository: the copy lies there, and would be copied into itself.
    """
    environment = (place / "pyvenv.cfg").exists() or (place / "conda-meta").is_dir()
    return environment or place.name in (*LEFT_OUT, _temporary_name())


def cache_folder() -> Path:
    """Where perfsuite keeps what it compiled and built; ``XDG_CACHE_HOME`` moves it. Raises UsageError if it cannot be
    made, or if others may write into it.
    """
    from platformdirs import user_cache_path

    return private_folder(user_cache_path(NAME, appauthor=False), "XDG_CACHE_HOME")


def code_folders(workspace: Path) -> dict[str, str]:
    """The variables that let torch, Triton and DeepSpeed keep compiled code in our cache, and everything else that
    libraries write among the temporary files in the workspace. Raises UsageError.

    Without them torch uses a folder of a fixed name among the system's temporary files. It keeps precompiled headers
    there in any case (torch/_inductor/codecache.py, _HEADER_DIR), so that name leads into our cache.
    """
    cache, temporary = cache_folder(), workspace / "tmp"
    check_executable(cache)
    ours = {name: str(private_folder(cache / folder, "XDG_CACHE_HOME")) for name, folder in CODE_FOLDERS.items()}
    release_old(Path(ours[EXTENSIONS]))
    temporary.mkdir(mode=0o700)
    (temporary / _inductors_name()).symlink_to(ours["TORCHINDUCTOR_CACHE_DIR"])
    return {"TMPDIR": str(_short(temporary)), **ours}


def _short(temporary: Path) -> Path:
    """The folder, or a link to it: workers of a DataLoader bind a socket there, whose path has few bytes, and wait for
    ever where it is longer. Links whose folders are gone are removed.
    """
    if len(os.fsencode(temporary)) <= MOST_BYTES:
        return temporary
    links = private_folder(Path("/tmp") / _temporary_name() / "short", "TMPDIR")
    for link in links.iterdir():
        if not link.exists():
            link.unlink(missing_ok=True)
    link = links / hashlib.sha256(os.fsencode(temporary)).hexdigest()[:16]
    with contextlib.suppress(FileExistsError):
        link.symlink_to(temporary)
    return link


def _inductors_name() -> str:
    """The fixed name; torch/_inductor/runtime/cache_dir_utils.py, default_cache_dir."""
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    return "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)


def check_executable(folder: Path) -> None:
    """Raise UsageError if no program can run, and no library can be loaded, from that folder of the cache."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise UsageError(
            f"The file system of {folder} is mounted with noexec, so no compiled code can be loaded from there. "
            "Let XDG_CACHE_HOME name a folder on another one."
        )


def runtime_folder() -> Path:
    """Where the locks of this machine and user are: in ``XDG_RUNTIME_DIR``, or among the temporary files, or, if
    another user has taken our name there, in the cache. Raises UsageError if none of them can be used.
    """
    named = os.environ.get("XDG_RUNTIME_DIR")
    return _first_private([Path(named, NAME)] if named else [])


def temporary_folder() -> Path:
    """Where this user's large temporary files are: as ``runtime_folder``, but not in XDG_RUNTIME_DIR, which is memory.
    Raises UsageError.
    """
    return _first_private([])


def _temporary_name() -> str:
    return f"{NAME}-{os.getuid()}"


def _first_private(candidates: list[Path]) -> Path:
    for folder in (*candidates, Path(tempfile.gettempdir(), _temporary_name())):
        try:
            return private_folder(folder, "XDG_RUNTIME_DIR")
        except UsageError:
            continue
    return private_folder(cache_folder() / "run", "XDG_CACHE_HOME")


def private_folder(folder: Path, variable: str) -> Path:
    """The folder, made if it is missing, which belongs to this user alone: mode 0700, no link. Raises UsageError with
    the ``variable`` that names another one.
    """
    way_out = f"Let {variable} name another folder."
    try:
        for missing in [one for one in (*reversed(folder.parents), folder) if not one.exists()]:
            missing.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}. {way_out}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder} is not a folder but a link or a file. {way_out}")
    if status.st_uid != os.getuid():
        raise UsageError(f"The folder {folder} belongs to user {status.st_uid}, not to you. {way_out}")
    if status.st_mode & stat.S_IWOTH:
        raise UsageError(f"Every user may write into the folder {folder}. Remove it. {way_out}")
    for parent in folder.absolute().parents:
        above = parent.stat()
        if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
            raise UsageError(f"Every user may exchange {folder}, since all may write into {parent}. {way_out}")
    if stat.S_IMODE(status.st_mode) != 0o700:
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise UsageError(f"The folder {folder} cannot be made private: {error.strerror}. {way_out}") from error
    return folder


def check_output(option: str, path: Path | None, suffix: str = "") -> None:
    """Raise UsageError early, not after hours of work, if no file with that suffix can be written there."""
    if not path:
        return
    folder, special = path.absolute().parent, path.exists() and not path.is_file()
    if path.suffix != (suffix or path.suffix) or special or not folder.is_dir():
        raise UsageError(f"{option} names {path}: it must be a file{suffix and ' *' + suffix} in an existing folder.")
    try:
        with tempfile.TemporaryFile(dir=folder):  # without a name, so that none stays
            pass
    except OSError as error:
        raise UsageError(f"{option} names {path}, but no file can be created there: {error.strerror}.") from error
