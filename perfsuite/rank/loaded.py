"""The files that this process has imported or loaded, and which of them are the user's own.

A file of the standard library or of an installed package is not; every other one is, wherever it lies: in the
repository, in a folder on PYTHONPATH, or in an editable install.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

PACKAGES = ("site-packages", "dist-packages")  # the folders of installed packages, wherever they are
SOURCES = (".py", *EXTENSION_SUFFIXES)


def imported() -> list[str]:
    """The sources and extensions of all imported modules."""
    modules = [module for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    files = {str(vars(module).get("__file__")) for module in modules}
    return sorted(file for file in files if file.endswith(SOURCES))


def shared_libraries() -> list[str]:
    """The shared libraries in this process' memory, extensions of modules included."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    places = {fields[5] for fields in (line.split(maxsplit=5) for line in lines) if len(fields) > 5}
    return sorted(place for place in places if ".so" in place)


def is_installed(file: str) -> bool:
    """Whether the file is of the standard library or of an installed package."""
    return file.startswith(_known_folders()) or any(f"/{folder}/" in file for folder in PACKAGES)


@functools.cache
def _known_folders() -> tuple[str, ...]:
    """This Python's folders, asked once: for the thousands of modules of a rank, sysconfig takes two seconds."""
    return tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def own_files() -> list[str]:
    """The imported files that are the user's own; those of perfsuite, if it is not installed, are among them."""
    return [file for file in imported() if not is_installed(file)]


def own_libraries() -> list[str]:
    """The loaded shared libraries of no installed package, such as one that ctypes loads, and the system's."""
    return [file for file in shared_libraries() if not is_installed(file)]
