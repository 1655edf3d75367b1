"""How an environment differs from a baseline's, apart from the machine: releases, variables and the user's own code."""

from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pool import changed_since
from perfsuite.environments import git
from perfsuite.environments.commits import have
from perfsuite.environments.content import DIGITS, Missing, of_content
from perfsuite.environments.contents import find
from perfsuite.environments.git_contents import recorded_in
from perfsuite.environments.own_packages import installed_from
from perfsuite.errors import UsageError
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import CODE, NONE, Change, ChangeKind, Fixed
from perfsuite.records.measurement import Measurement
from perfsuite.records.packed import own_files, same_content
from perfsuite.run.imports import hash_of

UNCOMMITTED = "-dirty"  # after the commit of a tree with uncommitted changes
LABEL = 12  # digits of a commit that are shown
COMPILED = ":(exclude,glob)**/__pycache__/**"


def requirement_of(name: str, release: str) -> str:
    """``name==version``, or ``name @ url``."""
    return f"{name} @ {release}" if "://" in release else f"{name}=={release}"


def changes_since(run: TimedRun | Measurement, measurement: Measurement, code: Change | None) -> list[Change]:
    """Every difference between the environments of a baseline's run and of a measurement."""
    others = [msgspec.structs.replace(change, fixed=_fixed(change)) for change in changed_since(run, measurement)]
    return [*([code] if code else []), *others]


def _fixed(change: Change) -> Fixed | None:
    """Why a change cannot be reverted; None if it can."""
    if change.is_added:
        return None
    if change.before != NONE and change.kind == ChangeKind.READ:
        return Fixed.ONLY_DIGEST
    return _FIXED.get(change.kind)


_FIXED = {
    ChangeKind.ORIGIN: Fixed.NO_RELEASE,
    ChangeKind.BUILD: Fixed.ONE_BUILD,
    ChangeKind.LIBRARY: Fixed.BY_PATH,
    ChangeKind.OUTSIDE: Fixed.OUTSIDE,
    ChangeKind.SWITCH: Fixed.SET_BY_CODE,
    ChangeKind.PYTHON: Fixed.NOT_A_PACKAGE,
    ChangeKind.KERNELS: Fixed.NOT_A_PACKAGE,
}


Hashes = Mapping[str, str]  # of files, by their paths in the repository


def code_since(
    run: TimedRun, measurement: Measurement, cell: Cell, catalog: Catalog, repository: Path
) -> Change | None:
    """How the user's own code and data that the cell's ranks read differ from a baseline's run; None if they do not. A
    run from before files were recorded is compared by its commit, if that is here.
    """
    before, now = (own_files(side.imports) for side in (run, measurement))
    return code_change(run.commit, repository, before, now)


def code_change(commit: str, repository: Path, before: Hashes, now: Hashes) -> Change | None:
    """How the files that ranks read ``now`` differ from those that they read ``before``; None if they do not.

    The digests decide, and git is only asked about a file that differs. A file of one side alone differs if the other
    side had it with another content, or not at all. perfsuite itself measures; it is not measured.
    """
    if (not before and not commit) or before == now:
        return None
    root, clean = git.repository_of(repository).resolve(), commit.removesuffix(UNCOMMITTED)
    installed = installed_from(root)
    older = dict(before)
    if new := [path for path in now if path not in before]:
        known = recorded_in(root, clean, new)
        if known is None and not before:
            return None
        for path, digests in (known or {}).items():
            same = any(same_content(digest, now[path]) for digest in digests)
            older |= {path: now[path] if same else min(digests)} if digests else {}
    newer = dict(now)
    for path in before.keys() - now.keys():
        newer[path] = hash_of(installed.get(path, root / path))
    paths = sorted({*older, *newer})
    files = tuple(path for path in paths if not same_content(older.get(path, ""), newer.get(path, "")))
    if not files:
        return None
    contents = tuple(older.get(path, "") for path in files)
    fixed, obstacle = None, ""
    try:
        find(root, {path: digest for path, digest in zip(files, contents, strict=True) if digest}, clean, installed)
    except Missing as error:
        fixed, obstacle = error.fixed, error.obstacle
    label = f"{clean[:LABEL]}{UNCOMMITTED if clean != commit else ''}" if clean else "recorded"
    after = _label_of([newer.get(path, "") for path in files], files, root)
    return Change(CODE, label, after, ChangeKind.CODE, fixed, files, contents, obstacle)


def _label_of(digests: Sequence[str], files: Sequence[str], root: Path) -> str:
    """The commit that is checked out, if it has these files as they are here."""
    head = git.commit_of("HEAD", root, digits=LABEL)
    blobs = git.objects((f"HEAD:{path}" for path in files), root)
    same = all(blob[:DIGITS] == of_content(digest) for blob, digest in zip(blobs, digests, strict=True))
    return head if head and same else "here"


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
    commit = have(text, repository)[:LABEL]
    if not commit:
        known = f"{text!r} is not a git revision of {repository}, a file of constraints or a release"
        way_out = "write a revision, a path, or transformers==5.22.0."
        raise UsageError(f"{known}: {way_out} {git.why_no_revision(repository)}".rstrip())
    return commit
