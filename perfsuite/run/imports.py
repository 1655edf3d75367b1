"""The user's files that a cell depends on: those that its ranks import or read, and its definitions.

Those of the repository are recorded with the cell as paths with git's hashes. So a later run knows which cells a change
can reach. Ranks import every definition file of the catalog, to find the cell's own; those of other cells are left out.

Files elsewhere, in a folder on PYTHONPATH or in an editable install, are recorded by the paths of their modules, since
the folder may be another one on each machine. They are in no commit of the repository, so only the hashes compare them.
"""

import ast
import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.environments import git
from perfsuite.environments.content import DIGITS, MOST_BYTES, digest_of, digests_of
from perfsuite.environments.own_packages import installed_from
from perfsuite.errors import UsageError
from perfsuite.records.packed import pack
from perfsuite.system.paths import PACKAGE, cache_folder

MOST_LISTED = 100  # files of a folder: one with more has data, of which no single file decides what a step does
PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages
OTHERS = ("model", "device", "engine", "technique", "study")  # kinds of which a cell uses only its own


def recorded(
    files: Iterable[str], cell: Cell, catalog: Catalog, root: Path, opened: Iterable[str] = ()
) -> dict[str, str]:
    """The record of a cell: ``{"perfsuite/rank": "build.py:1f0c93ab main.py:77de0a41"}``.

    ``files`` are those that its ranks imported, ``opened`` those that they read. One of another repository, or that is
    gone, is left out, and so is what perfsuite and git keep. An installed file of a package from this repository has
    its path there. A link on the way to a file counts by the text that says where it leads.
    """
    kept, places = kept_folders(), installed_from(root)
    ours = {file: path for path, file in places.items()}
    resolved = {Path(file).resolve() for file in (*files, *opened) if Path(file).is_absolute()}
    installed = {ours[file] for file in resolved & ours.keys()}
    read = [file for file in _below(opened, root) if not _is_in(root / file, kept) and ".git" not in Path(file).parts]
    paths = _below(files, root)
    paths |= installed | {file for file in read if (root / file).is_file()}
    own, definitions = definitions_of(cell, catalog, root), _definitions(catalog, root)
    others = definitions - own
    paths = (paths | own) - (others - reached(own, by_module(others), root))
    links = _links(file for file in (*files, *opened) if not _in_packages(file))
    paths |= {path.relative_to(root).as_posix() for path in links if path.is_relative_to(root)}
    return pack({path: hash_of(places.get(path, root / path)) for path in paths})


def present(looked_for: Iterable[str], root: Path) -> set[str]:
    """The files below ``root`` that are there, of those that ranks looked for; and those in the folders that they
    listed, unless there are many. Without what git ignores: a training's output differs on each machine.
    """
    files = set[Path]()
    for place in looked_for:
        path = Path(place).resolve()
        if path.is_relative_to(root):
            files |= _listed(path) if place.endswith(os.sep) else {path}
    files = {file for file in files if file.is_file()}
    ignored = {os.path.normpath(root / path) for path in git.ignored(sorted(files), root)}
    return set(map(str, files)) - ignored


def _links(files: Iterable[str]) -> set[Path]:
    """The links on the way to these files, or that they are."""
    ways = {Path(file) for file in files if Path(file).is_absolute()}
    return {place for place in ways.union(*(way.parents for way in ways)) if place.is_symlink()}


def _listed(folder: Path) -> set[Path]:
    """What is in it; nothing if that is much."""
    with contextlib.suppress(OSError):
        inside = set(itertools.islice(folder.iterdir(), MOST_LISTED + 1))
        return inside if len(inside) <= MOST_LISTED else set()
    return set()


def _in_packages(file: str) -> bool:
    return not PACKAGES.isdisjoint(Path(file).parts)


def outside(files: Iterable[str], root: Path) -> dict[str, str]:
    """The record of the imported files that are not below ``root``: ``{"common": "helper.py:1f0c93ab"}``. Two of one
    name have one hash together.
    """
    hashes: dict[str, list[str]] = {}
    kept = kept_folders()
    for path in sorted({Path(file).resolve() for file in files if Path(file).is_absolute()}):
        if (
            not path.is_relative_to(root)
            and not _in_packages(str(path))
            and not _is_in(path, kept)
            and (digits := hash_of(path))
        ):
            hashes.setdefault(_module_path(path), []).append(digits)
    return pack({name: digits[0] if len(digits) == 1 else _joined(digits) for name, digits in hashes.items()})


def _joined(digits: Iterable[str]) -> str:
    """One hash of several files' contents, and one of their codes if each has one."""
    columns = zip(*(digit.partition(".")[::2] for digit in digits), strict=True)
    return ".".join(
        hashlib.sha1(" ".join(column).encode(), usedforsecurity=False).hexdigest()[:DIGITS]
        for column in columns
        if all(column)
    )


def kept_folders() -> list[Path]:
    """perfsuite, and its cache folder, which has copies of revisions and compiled extensions."""
    folders = [PACKAGE]
    with contextlib.suppress(UsageError):
        folders.append(cache_folder().resolve())
    return folders


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _module_path(path: Path) -> str:
    """``common/nets/helper.py``: from the topmost package on."""
    top = path.parent
    while (top / "__init__.py").exists() and top != top.parent:
        top = top.parent
    return path.relative_to(top).as_posix()


def definitions_of(cell: Cell, catalog: Catalog, root: Path) -> set[str]:
    """The files below ``root`` that define the cell's model, with its sizes, its device, engine and techniques."""
    names = [("model", cell.model.name), ("engine", cell.strategy.engine.name)]
    names += [("technique", choice.technique.name) for choice in cell.strategy.choices]
    names += [("device", cell.hardware.device.name)] if cell.hardware.device else []
    files = [Path(catalog.origins[name]) for name in names if name in catalog.origins]
    tables = [table for file in files if (table := file.with_suffix(".toml")).is_file()]
    return _below(map(str, (*files, *tables)), root)


def hash_of(path: Path) -> str:
    """The first digits of the file's hash in git; of a very large file, of its size and its beginning. A Python file
    has the hash of its code, too, if it is the user's. A link has that of its text. Empty if it cannot be read.
    """
    try:
        if path.is_symlink():
            return digest_of(os.fsencode(os.readlink(path)))
        with path.open("rb") as file:
            text, size = file.read(MOST_BYTES), os.fstat(file.fileno()).st_size
    except OSError:
        return ""
    return digest_of(text, size) if path.is_relative_to(PACKAGE) else digests_of(path.name, text, size)


def by_module(paths: Iterable[str]) -> dict[str, set[str]]:
    """The files that a module's name may stand for: all whose path ends like it. Too many rather than too few."""
    files: dict[str, set[str]] = {}
    for path in paths:
        parts = PurePosixPath(path).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for at in range(len(parts)):
            files.setdefault(".".join(parts[at:]), set()).add(path)
    return files


def reached(start: Iterable[str], known: Mapping[str, set[str]], root: Path) -> set[str]:
    """Those of the ``known`` files that the first ones import, also indirectly, by the text of their imports."""
    imported: set[str] = set()
    ahead = [path for path in start if path.endswith(".py")]
    while ahead:
        try:
            names = _imports((root / ahead.pop()).read_bytes())
        except OSError:
            continue
        new = {path for name in names for path in known.get(name, ())} - imported
        imported |= new
        ahead += new
    return imported


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
    """Paths relative to ``root``. Files elsewhere are left out, and those of an environment that lies there, such as
    perfsuite's own definitions in a project's .venv.
    """
    paths = {Path(file).resolve() for file in files if Path(file).is_absolute() and not _in_packages(file)}
    return {path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)}
