"""The data files outside of the repository that a cell's ranks opened: those of the user's, and not of the system's.

Each is recorded by its absolute path, as another machine may have other data elsewhere. So two records are compared by
the paths that both have. Files that programs keep for themselves are left out: hidden ones, and those of the system,
of Python and of caches.
"""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from perfsuite.records.packed import pack, to_record
from perfsuite.run.imports import hash_of, kept_folders

SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/boot", "/run", "/var")
OTHERS = ("/opt", "/nix", "/snap")  # of programs that a system does not have by itself
CACHES = ("cache", "caches", "__pycache__", "site-packages", "dist-packages")  # names of folders
CODE = (".py", ".pyc", ".so", ".pth")  # imported or loaded, and recorded as such
MOST_FILES = 100  # that are recorded: a data set may have very many


def data_elsewhere(opened: Iterable[str], root: Path) -> dict[str, str]:
    """The record of such files: ``{"/data": "words.txt:1f0c93ab"}``. ``root`` is the repository. A link in it counts by
    the file that it leads to.
    """
    folders = [*map(Path, {*SYSTEM, *OTHERS, *_temporary(), sys.prefix, sys.base_prefix}), *kept_folders(), root]
    led = {os.path.realpath(file) if Path(file).is_relative_to(root) else file for file in opened}
    places = [file for file in led if _is_data(file) and not any(_is_in(file, folder) for folder in folders)]
    return pack({file: hash_of(Path(file).resolve()) for file in to_record(places, MOST_FILES) if Path(file).is_file()})


def _is_data(file: str) -> bool:
    path = Path(file)
    hidden = any(part.startswith(".") or part.lower() in CACHES for part in path.parts)
    return path.is_absolute() and not hidden and not path.name.endswith(CODE) and ".so." not in path.name


def _is_in(file: str, folder: Path) -> bool:
    """Also if it is there by a link."""
    return Path(file).is_relative_to(folder) or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def _temporary() -> tuple[str, ...]:
    return "/tmp", tempfile.gettempdir(), os.environ.get("XDG_CACHE_HOME") or "/tmp"
