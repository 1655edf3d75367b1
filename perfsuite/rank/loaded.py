"""The files that this process has imported or loaded, and which of them are the user's own.

A file of the standard library or of an installed package is not; every other one is, wherever it lies: in the
repository, in a folder on PYTHONPATH, or in an editable install. So is one of a package that was installed from a
folder of this machine, which may be the repository: the parent knows. What lies loose among the temporary files is
not: a library has generated it, by another name in each run.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import sysconfig
import tempfile
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
    """Whether the file is of the standard library or of an installed package, but not of one from a folder here. So is
    what it generates: PyTorch Geometric writes a module for each class of layers.
    """
    if os.path.dirname(file) == tempfile.gettempdir():
        return True
    installed = file.startswith(_known_folders()) or any(f"/{folder}/" in file for folder in PACKAGES)
    return installed and not file.startswith(_from_folders(tuple(sys.path)))


@functools.cache
def _from_folders(path: tuple[str, ...]) -> tuple[str, ...]:
    """The beginnings of the paths of packages that were installed from a folder of this machine (direct_url.json)."""
    found: list[str] = []
    for entry in path:
        if Path(entry).name in PACKAGES:
            for about in Path(entry).glob("*.dist-info/direct_url.json"):
                found += _tops_from_folder(about)
    return tuple(found)


def _tops_from_folder(about: Path) -> list[str]:
    """``…/site-packages/net/`` and ``…/site-packages/net.py``; none if the package comes from elsewhere."""
    try:
        address = json.loads(about.read_text())
        if not address["url"].startswith("file:") or (address.get("dir_info") or {}).get("editable"):
            return []
        lines = (about.parent / "RECORD").read_text().splitlines()
    except (OSError, ValueError, KeyError, AttributeError):
        return []
    firsts = {line.partition(",")[0].partition("/")[:2] for line in lines}
    tops = {"".join(parts) for parts in firsts if not parts[0].startswith("..") and parts[0] != about.parent.name}
    return [f"{about.parent.parent}/{top}" for top in sorted(tops)]


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


def users_files() -> list[str]:
    """The imported files that are the user's own, without those of perfsuite."""
    package = f"{Path(__file__).resolve().parents[1]}/"
    return [file for file in own_files() if not str(Path(file).resolve()).startswith(package)]
