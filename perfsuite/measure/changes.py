"""How an environment differs from a baseline's, apart from the machine: releases, variables and the user's own code."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.errors import UsageError
from perfsuite.gate.lines import NONE, differing
from perfsuite.gate.pool import compared
from perfsuite.launch.machine import KERNELS
from perfsuite.records.baseline import TimedRun
from perfsuite.records.measurement import Measurement

CODE = "your code"
MOST_FILES = 3  # of the user's code that a change names
UNCOMMITTED = "-dirty"  # after the commit of a tree with uncommitted changes
COMPILED = ":(exclude,glob)**/__pycache__/**"


@dataclass(frozen=True)
class Change:
    """One difference. ``fixed`` says why it cannot be reverted here; empty if it can. ``files`` are those of the user's
    own code that differ.
    """

    name: str
    before: str
    after: str
    kind: str  # "code", "variable", or one of gate/installations.py
    fixed: str = ""
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"

    @property
    def with_files(self) -> str:
        """``your code 1f0c93ab -> here (helper.py, models/net.py and 2 more)``."""
        more = f" and {len(self.files) - MOST_FILES} more" if len(self.files) > MOST_FILES else ""
        return f"{self} ({', '.join(self.files[:MOST_FILES])}{more})" if self.files else str(self)


def listed(things: Iterable[object]) -> str:
    """``a, b and c``."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def requirement_of(name: str, release: str) -> str:
    """``name==version``, or ``name @ url``."""
    return f"{name} @ {release}" if "://" in release else f"{name}=={release}"


def changes_since(run: TimedRun, measurement: Measurement, code: Change | None) -> list[Change]:
    """Every difference between the environments of a baseline's run and of a measurement."""
    found = [code] if code else []
    for kind, old, new in compared(run, measurement):
        for name, before, after in differing(old, new):
            found.append(Change(name, before, after, kind, WHY_FIXED[kind](name, before)))
    return found


def _why_no_release(name: str, before: str) -> str:
    if before == NONE:
        return "the baseline was recorded without it"
    return "it is not a package that uv can install" if name in ("python", KERNELS) else ""


def _why_no_variable(name: str, before: str) -> str:
    return "" if name.isupper() and "_" in name else "your code or a library sets it"


WHY_FIXED: dict[str, Callable[[str, str], str]] = {
    "release": _why_no_release,
    "variable": _why_no_variable,
    "origin": lambda name, before: "it is no release of the package index",
    "build": lambda name, before: "the package index has one build of a release",
    "library": lambda name, before: "its shared libraries are loaded by their paths",
    "outside": lambda name, before: "it is outside of the repository",
}


Hashes = Mapping[str, str]  # of files, by their paths in the repository


def code_change(
    commit: str, cell: Cell, catalog: Catalog, repository: Path, before: Hashes | None = None, now: Hashes | None = None
) -> Change | None:
    """How the user's own code that the cell runs differs from the commit; None if it does not, or there is none.

    The code is what the model's package and the catalogs have, and every file of the user's that ranks imported or
    read: ``before`` with the baseline, and ``now``. The hashes decide about files that git does not keep: ignored ones,
    and those of a submodule. perfsuite itself measures; it is not measured.
    """
    before, now = before or {}, now or {}
    root = git(repository, "rev-parse", "--show-toplevel")
    if not (commit and root):
        files = tuple(name for name, *_ in differing(before, now)) if before else ()
        why = "the baseline has no commit that has the older code"
        return Change(CODE, "recorded", "here", "code", why, files) if files else None
    top = Path(root).resolve()
    imported = [str(top / path) for path in sorted({*before, *now})]
    paths = [*code_of(cell, catalog, top), *imported]
    if not paths:
        return None
    clean = commit.removesuffix(UNCOMMITTED)
    if not git(repository, "rev-parse", "--verify", "--quiet", f"{clean}^{{commit}}"):
        return Change(CODE, clean, "here", "code", "this clone does not have that commit")
    where = ["--", *paths, COMPILED]
    after = "here"
    edited = git(repository, "status", "--porcelain", *where)
    committed = git(repository, "diff", "--name-only", clean, "HEAD", *where)
    names = {*committed.splitlines(), *(line.split(maxsplit=1)[-1] for line in edited.splitlines())}
    unkept = sorted({name for name in before.keys() & now.keys() if before[name] != now[name]} - names)
    if not edited and not unkept:
        if clean == commit and not committed:
            return None
        after = git(repository, "rev-parse", "--short=12", "HEAD")
    fixed = f"the baseline's commit does not have {listed(unkept[:MOST_FILES])}" if unkept else ""
    fixed = fixed if clean == commit else "the baseline was recorded with uncommitted changes"
    return Change(CODE, clean, after, "code", fixed, tuple(sorted({*names, *unkept})))


def lacks_code(commit: str, cell: Cell, catalog: Catalog, repository: Path, imported: Iterable[str] = ()) -> bool:
    """Whether a baseline's commit lacks code of the user's own that the cell ran, so no trial can revert to it."""
    committed = commit and not commit.endswith(UNCOMMITTED)
    return not committed and bool(own_code(cell, catalog, repository, imported))


def own_code(cell: Cell, catalog: Catalog, repository: Path, imported: Iterable[str] = ()) -> list[str]:
    """The user's own files and folders that the cell runs, in the git repository, or in this folder outside of git.
    ``imported`` are the files that its ranks imported, by their paths there.
    """
    root = Path(git(repository, "rev-parse", "--show-toplevel") or repository).resolve()
    return list(dict.fromkeys([*code_of(cell, catalog, root), *(str(root / path) for path in imported)]))


def code_of(cell: Cell, catalog: Catalog, root: Path) -> list[str]:
    """The user's own files and folders below ``root`` that the cell runs: its model's package, and the catalog's."""
    package = cell.model.build.split(":")[0].split(".")[0]
    found = util.find_spec(package) if package != "perfsuite" else None
    places = list(found.submodule_search_locations or [found.origin or ""]) if found else []
    paths = [path.resolve() for path in [*map(Path, filter(None, places)), *catalog.folders]]
    return [str(path) for path in paths if path.is_relative_to(root.resolve())]


def revision(text: str, repository: Path) -> str:
    """The commit that the text names, in twelve digits. Raises UsageError if git does not know it."""
    commit = git(repository, "rev-parse", "--verify", "--quiet", "--short=12", "--end-of-options", f"{text}^{{commit}}")
    if not commit:
        raise UsageError(
            f"{text!r} is not a git revision of {repository}, a file of constraints or a release: write a revision, "
            "a path, or transformers==5.22.0."
        )
    return commit


def git(repository: Path, *arguments: str) -> str:
    """git's output there; empty if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
