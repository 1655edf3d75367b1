"""What is installed where this rank runs, and what of it the rank has loaded.

A distribution can matter if a module of it was imported, or a shared library of it is loaded. Those of NVIDIA's wheels
are loaded by torch and never imported. So pip, linters and plugins of pytest do not count. They are recorded all the
same: a rank server has imported what earlier cells needed, so only the list of all says whether a distribution is new,
or merely unused by this rank.

A release of an index is known by its version, since an index does not replace files. All others also have an origin
(direct_url.json, see packaging.python.org): the commit of one that was installed from git, or else a digest of its
files. So has one of which a file was changed in place. The files of an editable one are the user's own: they are
compared one by one, and it has no entry here.
"""

import ast
import base64
import contextlib
import functools
import hashlib
import json
import os
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from perfsuite.rank.loaded import PACKAGES, imported, shared_libraries, users_files
from perfsuite.records.installed import Installed

DIGITS = 12
EDITED = "edited-"  # before the digest of files that were changed in place
MOMENT = 2.0  # seconds in which an installer writes its last files
IDLE = ("tqdm",)  # packages whose threads only watch
OWN = "perfsuite"  # it measures and is not measured
LIBRARIES = ".libs"  # behind the name of a distribution: the folder of what auditwheel put into its wheel


def installed(in_steps: Collection[str] = (), named: Iterable[str] = ()) -> Installed:
    """The distributions here, by what this process has loaded of them.

    ``in_steps`` are the modules that a step can reach; if there are none, it is not known what a step can run. It can
    also run the ``named`` distributions, and those that bring shared libraries.
    """
    there = known()
    modules = there.owners(imported())
    libraries = there.owners(shared_libraries()) - modules
    versions = there.versions
    reached: set[str] = set()
    if in_steps:
        reached = there.owners(_files_of(in_steps)) | there.owners(shared_libraries())
        reached |= set(map(canonicalize_name, named)) & modules
    return Installed(
        modules={name: versions[name] for name in sorted(modules)},
        libraries={name: versions[name] for name in sorted(libraries)},
        unused={name: versions[name] for name in sorted(versions.keys() - modules - libraries)},
        origins=there.origins | there.edited(imported()),
        builds=_builds(),
        in_steps=sorted(reached),
    )


def reachable(called: Collection[str], is_script: bool) -> frozenset[str]:
    """The modules that a step can reach: those whose functions one has called, and what the user's code imports; none
    if it is not known what was called. If processes or threads belong to a script's steps, all that it has imported.
    """
    if not called:
        return frozenset()
    everything = is_script and _runs_elsewhere()
    return frozenset(sys.modules) if everything else frozenset({*called, *imports_of(users_files())})


def _files_of(modules: Iterable[str]) -> set[str]:
    return {str(getattr(sys.modules.get(name), "__file__", None)) for name in modules}


def imports_of(files: Iterable[str]) -> set[str]:
    """The names of all modules that these files import, anywhere in them."""
    names: set[str] = set()
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            for node in ast.walk(ast.parse(Path(file).read_bytes())):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _runs_elsewhere() -> bool:
    """Whether the user's step may run in other processes or threads that this one began, such as a loader's workers."""
    threads = [thread for thread in threading.enumerate() if type(thread).__module__.partition(".")[0] not in IDLE]
    children = "".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return len(threads) > 1 or bool(children)


class Known:
    """The distributions in some folders of packages, by their names in canonical form, and whose each file is."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.versions: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self._abouts: dict[str, Path] = {}
        self._tops: dict[tuple[str, str], dict[str, Distribution]] = {}  # by folder and first name of a path
        for folder in folders:
            place = os.path.realpath(folder)
            for path in sorted([*Path(folder).glob("*.dist-info"), *Path(folder).glob("*.egg-info")]):
                self._add(place, path)

    def _add(self, folder: str, path: Path) -> None:
        text, _, version = path.stem.partition("-")
        name, distribution = canonicalize_name(text), Distribution.at(path)
        whole = path.is_file() or any((path / about).is_file() for about in ("METADATA", "PKG-INFO"))
        if not whole or name == OWN or name in self.versions:  # of two with one name, the earlier is imported
            return
        origin = origin_of(distribution)
        if origin is None:
            return
        self.versions[name] = version.partition("-py")[0] or distribution.version
        self.origins |= {name: origin} if origin else {}
        self._abouts[name] = path
        for top in [*tops(distribution), f"{text}{LIBRARIES}"]:
            self._tops.setdefault((folder, top), {})[name] = distribution

    def owners(self, files: Iterable[str]) -> set[str]:
        """The names of the distributions that have these files."""
        return {name for file in files if (name := self._owner(file))}

    def edited(self, files: Iterable[str]) -> dict[str, str]:
        """The distributions of which somebody has changed one of these files where it lies: a digest of those files. An
        installer writes the list of the files last, so only a file that is newer is read.
        """
        found: dict[str, dict[str, str]] = {}
        for file in files:
            name = self._owner(file)
            if not name or not _is_newer(file, self._abouts[name]):
                continue
            _, path = _in_packages(file)
            listed, now = _hashes(self._abouts[name]).get(path, ""), hashlib.sha256(Path(file).read_bytes()).digest()
            if listed and base64.urlsafe_b64decode(f"{listed}==") != now:
                found.setdefault(name, {})[path] = now.hex()
        return {name: f"{EDITED}{_digest_of(texts)}" for name, texts in found.items()}

    def _owner(self, file: str) -> str:
        folder, path = _in_packages(file)
        if not folder:
            return ""
        top = path.partition("/")[0]
        top = top if top.endswith(LIBRARIES) else top.partition(".")[0]
        owners = self._tops.get((_real(folder), top), {})
        if len(owners) > 1:  # a namespace, such as NVIDIA's: the lists of their files decide
            owners = {name: owner for name, owner in owners.items() if path in _files(owner)}
        return next(iter(owners), "")


def _in_packages(file: str) -> tuple[str, str]:
    """The folder of packages that has the file, and the file's path in it; empty if none has."""
    for kind in PACKAGES:
        folder, separator, path = file.rpartition(f"/{kind}/")
        if separator:
            return f"{folder}/{kind}", path
    return "", ""


def known() -> Known:
    """The distributions of this process."""
    return _known(tuple(path for path in dict.fromkeys(sys.path) if os.path.basename(path) in PACKAGES))


@functools.cache
def _known(folders: tuple[str, ...]) -> Known:
    return Known(folders)


_real = functools.cache(os.path.realpath)


def origin_of(distribution: Distribution) -> str | None:
    """What distinguishes the distribution's content; empty for a release of an index, None for an editable one."""
    try:
        url: Mapping[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
        editable, commit = (url.get(key) or {} for key in ("dir_info", "vcs_info"))
        if editable.get("editable"):
            return None
        return str(commit.get("commit_id", ""))[:DIGITS] or (_content(distribution) if url else "")
    except (ValueError, AttributeError):  # not what pip writes
        return _content(distribution)


def _content(distribution: Distribution) -> str:
    """A digest of the installed files, from the hashes in their list; not of what an installer adds to them."""
    digest = hashlib.sha256()
    for line in sorted(_record(distribution).splitlines()):
        path, digits = [*line.rsplit(",", 2), ""][:2]
        if not path.startswith("..") and ".dist-info/" not in path and not path.endswith(".pyc"):
            digest.update(f"{path} {digits}\n".encode())
            if not digits:  # which pip writes, and no wheel must have
                with contextlib.suppress(OSError):
                    digest.update(Path(str(distribution.locate_file(path))).read_bytes())
    return digest.hexdigest()[:DIGITS]


def _record(distribution: Distribution) -> str:
    return distribution.read_text("RECORD") or ""


def tops(distribution: Distribution) -> set[str]:
    """The first names in the paths of its modules."""
    if text := distribution.read_text("top_level.txt"):
        return set(text.split())
    firsts = {line.partition("/")[0].partition(",")[0] for line in _record(distribution).splitlines()}
    return {first.partition(".")[0] for first in firsts if not first.endswith((LIBRARIES, ".dist-info"))}


def _is_newer(file: str, about: Path) -> bool:
    """Whether the file was written after the list of its distribution's files; not if one of them is not there."""
    with contextlib.suppress(OSError):
        return os.stat(file).st_mtime > _written(about / "RECORD") + MOMENT
    return False


@functools.cache
def _written(path: Path) -> float:
    return path.stat().st_mtime


@functools.cache
def _hashes(about: Path) -> dict[str, str]:
    """What the list says of each file that is a digest of the usual kind."""
    lines = (line.rsplit(",", 2) for line in (about / "RECORD").read_text().splitlines() if ",sha256=" in line)
    return {path: digest.removeprefix("sha256=") for path, digest, _ in lines}


def _digest_of(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:DIGITS]


@functools.cache
def _files(distribution: Distribution) -> frozenset[str]:
    return frozenset(line.partition(",")[0] for line in _record(distribution).splitlines())


def _builds() -> dict[str, str]:
    """torch's build, which its version need not name: ``cf30153c4c13-cu12.8``."""
    version = getattr(sys.modules.get("torch"), "version", None)
    facts = [str(getattr(version, "git_version", None) or "")[:DIGITS]]
    facts += [
        f"{short}{release}"
        for short, name in (("cu", "cuda"), ("rocm", "hip"))
        if (release := getattr(version, name, None))
    ]
    build = "-".join(filter(None, facts))
    return {"torch": build} if build else {}
