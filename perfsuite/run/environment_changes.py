"""How an environment differs from a baseline's, apart from the machine: releases, variables and the user's own code."""

from collections.abc import Mapping
from importlib import util
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pool import changed_since
from perfsuite.compare.scope import changes
from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.launch.machine import KERNELS
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import CODE, NONE, Change, ChangeKind, Fixed
from perfsuite.records.measurement import Measurement
from perfsuite.records.packed import own_files

UNCOMMITTED = "-dirty"  # after the commit of a tree with uncommitted changes
COMPILED = ":(exclude,glob)**/__pycache__/**"


def requirement_of(name: str, release: str) -> str:
    """``name==version``, or ``name @ url``."""
    return f"{name} @ {release}" if "://" in release else f"{name}=={release}"


def changes_since(run: TimedRun | Measurement, measurement: Measurement, code: Change | None) -> list[Change]:
    """Every difference between the environments of a baseline's run and of a measurement."""
    others = [msgspec.structs.replace(change, fixed=_fixed(change)) for change in changed_since(run, measurement)]
    return [*([code] if code else []), *others]


def _fixed(change: Change) -> Fixed | None:
    """Why a release or a variable cannot be reverted; None if it can."""
    if change.kind == ChangeKind.VARIABLE:
        return None if change.name.isupper() and "_" in change.name else Fixed.SET_BY_CODE
    if change.kind != ChangeKind.RELEASE:
        return _FIXED[change.kind]
    if change.before == NONE:
        return Fixed.NOT_RECORDED
    return Fixed.NOT_A_PACKAGE if change.name in ("python", KERNELS) else None


_FIXED = {
    ChangeKind.ORIGIN: Fixed.NO_RELEASE,
    ChangeKind.BUILD: Fixed.ONE_BUILD,
    ChangeKind.LIBRARY: Fixed.BY_PATH,
    ChangeKind.OUTSIDE: Fixed.OUTSIDE,
}


Hashes = Mapping[str, str]  # of files, by their paths in the repository


def code_since(
    run: TimedRun, measurement: Measurement, cell: Cell, catalog: Catalog, repository: Path
) -> Change | None:
    """How the user's own code that the cell runs differs from a baseline's run; None if it does not. A run from before
    imports were recorded is compared by its commit.
    """
    before, now = (own_files(side.imports) for side in (run, measurement))
    return code_change(run.commit, cell, catalog, repository, before, now)


def code_change(
    commit: str, cell: Cell, catalog: Catalog, repository: Path, before: Hashes | None = None, now: Hashes | None = None
) -> Change | None:
    """How the user's own code that the cell runs differs from the commit; None if it does not, or there is none.

    The code is what the model's package and the catalogs have, and every file of the user's that ranks imported or
    read: ``before`` with the baseline, and ``now``. The hashes decide about files that git does not keep: ignored ones,
    and those of a submodule. perfsuite itself measures; it is not measured.
    """
    before, now = before or {}, now or {}
    root = git.ask(repository, "rev-parse", "--show-toplevel")
    if not (commit and root):
        files = tuple(change.name for change in changes(before, now)) if before else ()
        return Change(CODE, "recorded", "here", ChangeKind.CODE, Fixed.NO_COMMIT, files) if files else None
    top = Path(root).resolve()
    imported = [str(top / path) for path in sorted({*before, *now})]
    paths = [*code_of(cell, catalog, top), *imported]
    if not paths:
        return None
    clean = commit.removesuffix(UNCOMMITTED)
    if not git.commit_of(clean, repository):
        return Change(CODE, clean, "here", ChangeKind.CODE, Fixed.UNKNOWN_COMMIT)
    where = ["--", *paths, COMPILED]
    after = "here"
    edited = git.ask(repository, "status", "--porcelain", *where)
    committed = git.ask(repository, "diff", "--name-only", clean, "HEAD", *where)
    names = {*committed.splitlines(), *(line.split(maxsplit=1)[-1] for line in edited.splitlines())}
    unkept = sorted({name for name in before.keys() & now.keys() if before[name] != now[name]} - names)
    if not edited and not unkept:
        if clean == commit and not committed:
            return None
        after = git.commit_of("HEAD", repository, digits=12)
    fixed = Fixed.NOT_IN_COMMIT if unkept else None
    fixed = fixed if clean == commit else Fixed.UNCOMMITTED
    return Change(CODE, clean, after, ChangeKind.CODE, fixed, tuple(sorted({*names, *unkept})))


def lacks_code(commit: str, cell: Cell, catalog: Catalog, repository: Path, imports: Hashes | None = None) -> bool:
    """Whether a baseline's commit lacks code of the user's own that the cell ran, so no trial can revert to it."""
    committed = commit and not commit.endswith(UNCOMMITTED)
    return not committed and bool(own_code(cell, catalog, repository, imports))


def own_code(cell: Cell, catalog: Catalog, repository: Path, imports: Hashes | None = None) -> list[str]:
    """The user's own files and folders that the cell runs, in the git repository, or in this folder outside of git.
    ``imports`` is the record of the files that its ranks imported.
    """
    root = git.repository_of(repository)
    return list(
        dict.fromkeys([*code_of(cell, catalog, root), *(str(root / path) for path in own_files(imports or {}))])
    )


def code_of(cell: Cell, catalog: Catalog, root: Path) -> list[str]:
    """The user's own files and folders below ``root`` that the cell runs: its model's package, and the catalog's."""
    package = cell.model.build.split(":")[0].split(".")[0]
    spec = util.find_spec(package) if package != "perfsuite" else None
    places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
    paths = [path.resolve() for path in [*map(Path, filter(None, places)), *catalog.folders]]
    return [str(path) for path in paths if path.is_relative_to(root.resolve())]


def revision(text: str, repository: Path) -> str:
    """The commit that the text names, in twelve digits. Raises UsageError if git does not know it."""
    commit = git.commit_of(text, repository, digits=12)
    if not commit:
        raise UsageError(
            f"{text!r} is not a git revision of {repository}, a file of constraints or a release: write a revision, "
            "a path, or transformers==5.22.0."
        )
    return commit
