"""The repository's files that a cell depends on: those that its ranks import, and its definitions.

They are recorded with the cell as paths with git's hashes. So a later run knows which cells a change can reach. Ranks
import every definition file of the catalog, to find the cell's own; those of other cells are left out.
"""

import ast
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import Change
from perfsuite.records.measurement import Measurement
from perfsuite.run.environment_changes import code_change, git

DIGITS, HASH = 8, frozenset("0123456789abcdef")  # of a hash
OTHERS = ("model", "device", "engine", "technique", "study")  # kinds of which a cell uses only its own


@functools.cache
def repository_of(folder: Path) -> Path:
    """The top of the git repository that has the folder, or else the folder."""
    return Path(git(folder, "rev-parse", "--show-toplevel") or folder).resolve()


def recorded(files: Iterable[str], cell: Cell, catalog: Catalog, root: Path) -> dict[str, str]:
    """The record of a cell: ``{"perfsuite/rank": "build.py:1f0c93ab main.py:77de0a41"}``.

    ``files`` are those that its ranks imported. One of another repository, or that is gone, is left out.
    """
    paths = _below(files, root)
    own, definitions = definitions_of(cell, catalog, root), _definitions(catalog, root)
    others = definitions - own
    paths = (paths | own) - (others - reached(own, by_module(others), root))
    return pack({path: hash_of(root / path) for path in paths})


def own_files(imports: Mapping[str, str], root: Path) -> dict[str, str]:
    """The user's own files of a record, with their hashes: all but perfsuite's, which measures and is not measured."""
    package = Path(__file__).resolve().parents[1]
    return {path: found for path, found in unpack(imports).items() if not (root / path).is_relative_to(package)}


def definitions_of(cell: Cell, catalog: Catalog, root: Path) -> set[str]:
    """The files below ``root`` that define the cell's model, device, engine and techniques."""
    names = [("model", cell.model.name), ("engine", cell.strategy.engine.name)]
    names += [("technique", choice.technique.name) for choice in cell.strategy.choices]
    names += [("device", cell.hardware.device.name)] if cell.hardware.device else []
    return _below((catalog.origins[one] for one in names if one in catalog.origins), root)


def pack(hashes: Mapping[str, str]) -> dict[str, str]:
    """Paths with hashes as a record, one entry per folder."""
    names = sorted((PurePosixPath(path), found) for path, found in hashes.items() if found)
    folders = itertools.groupby(sorted(names, key=lambda one: str(one[0].parent)), key=lambda one: str(one[0].parent))
    return {folder: " ".join(f"{path.name}:{found}" for path, found in group) for folder, group in folders}


def unpack(imports: Mapping[str, str]) -> dict[str, str]:
    """A record as hashes by path."""
    return {
        str(PurePosixPath(folder, name)): found for folder, text in imports.items() for name, found in _entries(text)
    }


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The names of a folder's files with their hashes. A name may have spaces: it ends before its hash."""
    begun: list[str] = []
    for word in text.split(" "):
        name, colon, found = word.rpartition(":")
        if colon and len(found) == DIGITS and set(found) <= HASH:
            yield " ".join([*begun, name]), found
            begun = []
        else:
            begun.append(word)


def hash_of(path: Path) -> str:
    """The first digits of the file's hash in git; empty if it cannot be read."""
    try:
        text = path.read_bytes()
    except OSError:
        return ""
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()[:DIGITS]


def by_module(paths: Iterable[str]) -> dict[str, set[str]]:
    """The files that a module's name may stand for: all whose path ends like it. Too many rather than too few."""
    found: dict[str, set[str]] = {}
    for path in paths:
        parts = PurePosixPath(path).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for at in range(len(parts)):
            found.setdefault(".".join(parts[at:]), set()).add(path)
    return found


def reached(start: Iterable[str], known: Mapping[str, set[str]], root: Path) -> set[str]:
    """Those of the ``known`` files that the first ones import, also indirectly, by the text of their imports."""
    found: set[str] = set()
    ahead = [path for path in start if path.endswith(".py")]
    while ahead:
        try:
            names = _imports((root / ahead.pop()).read_bytes())
        except OSError:
            continue
        new = {path for name in names for path in known.get(name, ())} - found
        found |= new
        ahead += new
    return found


@functools.lru_cache(maxsize=4096)  # most cells have most files in common
def _imports(text: bytes) -> frozenset[str]:
    """The names of modules that a file imports, anywhere in it; a relative one by its last part."""
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = [node.module] if node.module else []
            names |= {*start, *(".".join([*start, alias.name]) for alias in node.names)}
    return frozenset(names)


def _definitions(catalog: Catalog, root: Path) -> set[str]:
    return _below((origin for (kind, _), origin in catalog.origins.items() if kind in OTHERS), root)


def _below(files: Iterable[str], root: Path) -> set[str]:
    """Paths relative to ``root``; files elsewhere are left out."""
    paths = {Path(file).resolve() for file in files if Path(file).is_absolute()}
    return {path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)}


def code_since(
    run: TimedRun, measurement: Measurement, cell: Cell, catalog: Catalog, repository: Path
) -> Change | None:
    """How the user's own code that the cell runs differs from a baseline's run; None if it does not. A run from before
    imports were recorded is compared by its commit.
    """
    root = repository_of(repository)
    before, now = (own_files(one.imports, root) for one in (run, measurement))
    return code_change(run.commit, cell, catalog, repository, before, now)
