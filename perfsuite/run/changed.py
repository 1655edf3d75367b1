"""Which cells a change can reach: those whose files, definitions or libraries differ from a revision of git."""

import contextlib
import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path, PurePosixPath

from perfsuite.environments import git
from perfsuite.environments.content import DIGITS
from perfsuite.errors import UsageError
from perfsuite.rank.flags import own_code
from perfsuite.rank.installed import imports_of, known
from perfsuite.records.change import NONE
from perfsuite.records.installed import Installed
from perfsuite.records.measurement import OWN_CODE, Measurement, releases
from perfsuite.records.packed import same_content, unpack
from perfsuite.run.imports import by_module, hash_of, reached
from perfsuite.system.machine import version_of

NO_RECORD = "no record of what it imports"
CODE = (".py", ".pyc", ".md", ".rst")  # no data: what is imported is known, and no code reads texts
AT_EACH_START = ("sitecustomize", "usercustomize")


@dataclass(frozen=True)
class Changed:
    """The files that differ between the commit ``base`` and the working tree, new ones too, below ``root``. ``hashes``
    are those of all files of the commit, as records have them.
    """

    root: Path
    base: str
    files: frozenset[str]
    hashes: Mapping[str, str]

    @classmethod
    def since(cls, text: str, root: Path) -> "Changed":
        """Since the branch left the revision. Raises UsageError if git does not know it."""
        base = git.ask(root, "merge-base", "--end-of-options", text, "HEAD")
        if not base:
            raise UsageError(
                git.why_no_revision(root)
                or f"--perf-changed={text}: git knows no common commit of {text!r} and HEAD in {root}. Write a "
                "revision after =, e.g. --perf-changed=origin/main, and fetch its history."
            )
        differing = git.ask(root, "diff", "--name-only", "--no-renames", "-z", base)
        new = git.ask(root, "ls-files", "--others", "--exclude-standard", "-z")
        # Of some files git does not look at the disk, such as those that a sparse checkout left out and somebody made.
        tags = git.ask(root, "ls-files", "-v", "-z").split("\0")
        unseen = [tag[2:] for tag in tags if (tag[:1] == "S" or tag[:1].islower()) and (root / tag[2:]).is_file()]
        rows = (row.partition("\t") for row in git.ask(root, "ls-tree", "-r", "-z", base).split("\0"))
        hashes = {path: words.split()[2][:DIGITS] for words, _, path in rows if path}
        files = frozenset(filter(None, [*f"{differing}\0{new}".split("\0"), *unseen]))
        return cls(root, base[:12], files, hashes)

    def why(self, measurement: Measurement | None, watched: Iterable[str]) -> str:
        """Why a cell must run, in a few words; empty if no change can reach it.

        ``measurement`` is its record, ``watched`` are files that count in addition to what it imported.
        """
        if measurement is None or not measurement.imports:
            return NO_RECORD
        record = unpack(measurement.imports)
        # What a file has begun to import since the record counts too, and what a conftest imports: it may define models
        stale = [path for path, digest in record.items() if not same_content(digest, self.hashes.get(path, ""))]
        watched = set(watched)
        mine = {*record, *watched, *reached([*stale, *watched], self._modules, self.root)}
        folders = {PurePosixPath(path).parent for path in record}
        above = {*folders, *(parent for folder in folders for parent in folder.parents if parent.name)}
        ignored = {path for path in record if path not in self.hashes and (self.root / path).is_file()}
        for path in sorted(self.files | ignored):
            if path in record and same_content(record[path], hash_of(self.root / path)):
                continue
            place = PurePosixPath(path)
            home = self._home(place)
            data = place.suffix not in CODE and home in (folders if home == place.parent else above)
            if path in mine or data or self._is_found_now(place, folders, record):
                return f"{path} changed"
        return _other_libraries(measurement, self.root)

    def _is_found_now(self, place: PurePosixPath, folders: set[PurePosixPath], record: Mapping[str, str]) -> bool:
        """Whether Python finds this new module where a recorded file asks for that name, which it found elsewhere or
        nowhere until now; or runs it at each start. ``folders`` are those of the recorded files.
        """
        if place.suffix != ".py" or str(place) in self.hashes:
            return False
        inside = [one for one in {PurePosixPath(), *folders} if place.is_relative_to(one)]
        tops = {place.relative_to(one).parts[0].removesuffix(".py") for one in inside}
        return not tops.isdisjoint(AT_EACH_START) or any(
            not tops.isdisjoint(_asked_for(self.root / path)) for path in record if path.endswith(".py")
        )

    def _home(self, place: PurePosixPath) -> PurePosixPath:
        """The file's folder; the nearest one that the commit has, for a file in a new folder."""
        return next(folder for folder in place.parents if folder in self._folders or not folder.name)

    @functools.cached_property
    def _folders(self) -> set[PurePosixPath]:
        """Those of the commit."""
        return {folder for path in self.hashes for folder in PurePosixPath(path).parents}

    @functools.cached_property
    def _modules(self) -> dict[str, set[str]]:
        return by_module(path for path in {*self.hashes, *self.files} if path.endswith(".py"))


@functools.cache
def _asked_for(path: Path) -> frozenset[str]:
    """The first names of all modules that a file imports."""
    return frozenset(name.partition(".")[0] for name in imports_of([str(path)]))


def _others_installed(recorded: Installed) -> str:
    """The first other distribution, or file outside of the repository, that differs from the record."""
    there, versions = known(), releases(known().versions)
    for name, before in releases(recorded.loaded).items():
        if before != versions.get(name):
            return f"{name} {before} -> {versions.get(name, NONE)}"
        if recorded.origins.get(name) != there.origins.get(name):
            return f"{name} {before} is from elsewhere"
    for path, digest in unpack(recorded.outside).items():
        if path.startswith("/") and not Path(path).exists():
            continue  # data that this machine has elsewhere
        if not same_content(digest, hash_of(_place_of(path))):
            return f"{path} changed, outside of the repository"
    return ""


def _place_of(path: str) -> Path:
    """Where Python would import that module's file from; the path itself if it would not."""
    spec = None
    with contextlib.suppress(ValueError):
        spec = util.find_spec(path.partition("/")[0].removesuffix(".py"))
    place = Path((spec.origin if spec else "") or path)
    return place.parent.parent / path if "/" in path else place


def _other_libraries(measurement: Measurement, root: Path) -> str:
    """The first library with another release than in the record; empty if there is none."""
    for name, recorded in releases(measurement.versions).items():
        if name == "cpu kernels":
            continue
        here = releases({name: sys.version.split()[0] if name == "python" else version_of(name)})[name]
        if here != recorded:
            return f"{name} {recorded} -> {here or 'none'}"
    if reason := _others_installed(measurement.installed):
        return reason
    package = Path(__file__).resolve().parents[1]
    inside = package.is_relative_to(root)  # then its files are in the record
    return "" if inside or measurement.flags.get(OWN_CODE) == own_code() else "perfsuite's code changed"
