"""Packages that were installed from this repository, by ``pip install .`` for example: they are code of it.

Their installed files stand for those of the repository, by whose paths they are recorded. So a baseline of an editable
installation, or of a folder on PYTHONPATH, has the same record. Installers note where a package comes from in
direct_url.json (packaging.python.org). An editable one has no files of its own.
"""

import functools
import json
import sys
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg")


def installed_from(root: Path) -> dict[str, Path]:
    """The installed files by their paths in the repository, also of files that it no longer has."""
    return {path: file for files in _packages(root, tuple(sys.path)).values() for path, file in files.items()}


def names_from(root: Path) -> set[str]:
    """The canonical names of these packages."""
    return set(_packages(root, tuple(sys.path)))


@functools.cache
def _packages(root: Path, folders: tuple[str, ...]) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {}
    for distribution in metadata.distributions(path=list(folders)):
        folder = _source(distribution)
        name = canonicalize_name(distribution.metadata["Name"] or "")
        if folder is not None and folder.is_relative_to(root) and name not in found:
            found[name] = _files(distribution, folder, root)
    return found


def _source(distribution: Distribution) -> Path | None:
    """The folder of the project from which it was installed; None for all others and for an editable one."""
    try:
        address = json.loads(distribution.read_text("direct_url.json") or "{}")
        parts = urlsplit(address.get("url", ""))
        if parts.scheme != "file" or (address.get("dir_info") or {}).get("editable"):
            return None
    except (ValueError, AttributeError):
        return None
    place = Path(url2pathname(parts.path)).resolve()
    if "dir_info" in address:
        return place
    # A wheel that was built here lies in a folder of its project.
    return next((parent for parent in place.parents if any((parent / name).is_file() for name in PROJECTS)), None)


def _files(distribution: Distribution, folder: Path, root: Path) -> dict[str, Path]:
    found = {}
    for entry in distribution.files or ():
        top = entry.parts[0]
        if top == ".." or top.endswith((".dist-info", ".data")) or entry.suffix == ".pyc" or entry.is_absolute():
            continue
        place = _base(folder, top) / entry
        found[place.relative_to(root).as_posix()] = Path(str(distribution.locate_file(entry))).resolve()
    return found


@functools.cache
def _base(folder: Path, top: str) -> Path:
    """The folder of the project that has a package of that name."""
    bases = [folder / "src", folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    return next((base for base in bases if (base / top).exists()), folder)
