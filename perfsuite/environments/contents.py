"""The content that a user's file had when it was recorded, found by its digest.

No commit need be known for that: git names a file's content by the digest that a record has. So it is found after a
squash or a rebase, and in commits that came later. It is looked for

1. in perfsuite's cache folder, which keeps what the records of this machine need,
2. where the file is now: an installed package may differ from the tree that it was installed from,
3. in git's objects, those of the submodule that has the file, by the digest itself,
4. in the recorded commit and in every commit that changed the file: line ends, filters and LFS give a file on the disk
   another content than git has,
5. in the recorded commit after it was fetched, if this clone does not have it.

The cache folder keeps the contents, not git: other clones of the repository find them there too, and nothing is
written into the user's repository. ``contents`` there may be deleted at any time.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.records.change import Fixed
from perfsuite.records.python_code import code_digest
from perfsuite.system.paths import cache_folder

DIGITS = 8  # of each digest in a record
MOST_BYTES = 2**24  # of a file that is kept, or whose digest covers all of it
MOST_VERSIONS = 200  # of a file, whose contents are computed from what git has
GRACE_SECONDS = 30 * 24 * 3600.0  # before a content that no record of this clone needs is removed
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
_MOST_OF_POINTER = 1024


class Missing(UsageError):
    """The content of a file is nowhere. ``obstacle`` is the file, or git's message."""

    def __init__(self, fixed: Fixed, obstacle: str, way_out: str) -> None:
        super().__init__(way_out)
        self.fixed, self.obstacle = fixed, obstacle


@dataclass(frozen=True)
class Content:
    """A file's content: of a ``file``, or else of an ``object`` that the repository of a folder has. With a ``path`` it
    is what git would write to the disk for that path.
    """

    file: Path | None = None
    folder: Path = Path()
    object: str = ""
    path: str = ""

    def read(self) -> bytes:
        """All of it. Raises UsageError with git's message."""
        if self.file:
            return self.file.read_bytes()
        how = ["--filters", f"--path={self.path}"] if self.path else ["blob"]
        return git.read(self.folder, "cat-file", *how, self.object)

    def write(self, target: Path) -> None:
        """Write it to that path."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.file:
            shutil.copy2(self.file, target)
        else:
            target.write_bytes(self.read())


def digest_of(content: bytes, size: int | None = None) -> str:
    """The first digits of the hash that git gives a file of this content; of a very large one, of its beginning."""
    size = len(content) if size is None else size
    digest = hashlib.sha1(b"blob %d\0" % size + content[:MOST_BYTES], usedforsecurity=False)
    return digest.hexdigest()[:DIGITS]


def digests_of(name: str, content: bytes, size: int | None = None) -> str:
    """The same and, of a Python file, a digest of its code behind a dot, as a record has it."""
    code = code_digest(content)[:DIGITS] if name.endswith(".py") and size in (None, len(content)) else ""
    return f"{digest_of(content, size)}.{code}" if code else digest_of(content, size)


def digest_of_file(path: Path) -> str:
    """The same of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return digest_of(file.read(MOST_BYTES), os.fstat(file.fileno()).st_size)
    except OSError:
        return ""


def of_content(digest: str) -> str:
    """The part of a record's digest that is the content's own."""
    return digest.partition(".")[0]


# What the cache folder keeps.


def keep(project: str, root: Path, digests: Mapping[str, str], places: Mapping[str, Path]) -> None:
    """Keep the contents of these files of the project, if they are still those of the record. ``places`` are those of
    files that are elsewhere than below ``root``. A cache that cannot be written keeps none.
    """
    with contextlib.suppress(OSError, UsageError):
        folder = cache_folder() / "contents" / project
        folder.mkdir(parents=True, exist_ok=True)
        for path, digest in digests.items():
            kept, place = folder / _name(path, digest), places.get(path, root / path)
            if kept.exists():
                os.utime(kept)
            elif place.stat().st_size <= MOST_BYTES and digest_of_file(place) == of_content(digest):
                part = kept.with_suffix(f".{os.getpid()}.part")
                shutil.copy(place, part)
                part.replace(kept)


def prune(project: str, needed: Callable[[], Iterable[Mapping[str, str]]]) -> None:
    """Remove what was not stored for long, if none of the project's records needs it. ``needed`` reads the records."""
    with contextlib.suppress(OSError, UsageError):
        folder, oldest = cache_folder() / "contents" / project, time.time() - GRACE_SECONDS
        if old := [kept for kept in folder.iterdir() if kept.stat().st_mtime < oldest]:
            names = {_name(path, digest) for digests in needed() for path, digest in digests.items()}
            for kept in old:
                if kept.name in names:
                    os.utime(kept)
                else:
                    kept.unlink(missing_ok=True)


def _name(path: str, digest: str) -> str:
    return f"{of_content(digest)}-{hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:DIGITS]}"


def _kept(path: str, digest: str) -> Path | None:
    """What a record of any clone has kept for this file."""
    with contextlib.suppress(OSError, UsageError):
        for file in (cache_folder() / "contents").glob(f"*/{_name(path, digest)}"):
            if digest_of_file(file) == of_content(digest):
                return file
    return None


# What git has.


def find(root: Path, digests: Mapping[str, str], commit: str, places: Mapping[str, Path]) -> dict[str, Content]:
    """The contents of these files of the repository, by their paths. ``commit`` is the recorded one, if there is one.

    Raises Missing for the first one that is nowhere.
    """
    found, ahead = {}, {}
    for path, digest in digests.items():
        kept, place = _kept(path, digest), places.get(path, root / path)
        if kept or digest_of_file(place) == of_content(digest):
            found[path] = Content(file=kept or place)
        elif (tree := root / path).is_file() and digest_of_file(tree) == of_content(digest):
            found[path] = Content(file=tree)
        else:
            ahead[path] = of_content(digest)
    for top, paths in _by_repository(root, ahead).items():
        found |= _in_git(root, top, {path: ahead[path] for path in paths}, commit)
    return found


def _by_repository(root: Path, paths: Iterable[str]) -> dict[Path, list[str]]:
    """The files by the top of the repository that has them: ``root``, or that of a submodule."""
    tops: dict[Path, list[str]] = {}
    for path in paths:
        inside = [parent for parent in (root / path).parents if parent.is_relative_to(root)]
        tops.setdefault(next((one for one in inside if (one / ".git").exists()), root), []).append(path)
    return tops


def _in_git(root: Path, top: Path, digests: Mapping[str, str], commit: str) -> dict[str, Content]:
    """Raises Missing for the first file that git does not have."""
    if not git.is_inside(top):
        raise Missing(
            Fixed.NO_GIT,
            next(iter(digests)),
            f"{top} is no git repository, so the older content of {next(iter(digests))} is not here. Run this in a "
            "clone with the recorded code, or accept the cell anew.",
        )
    if said := git.problem(top):
        raise Missing(Fixed.GIT_FAILS, said, said)
    found: dict[str, Content] = {}
    ahead = []
    names = git.objects(digests.values(), top)
    for (path, digest), name in zip(digests.items(), names, strict=True):
        if name:  # git knows one object that begins like that
            found[path] = Content(folder=top, object=name)
            continue
        inside = (root / path).relative_to(top).as_posix()
        if content := _by_digest(top, inside, digest) or _by_history(
            top, inside, digest, _commit_in(root, top, commit)
        ):
            found[path] = content
        else:
            ahead.append((path, inside))
    if not ahead:
        return found
    try:
        _fetch(root, top, commit)
    except UsageError as error:
        if git.is_shallow(top):  # else the whole history is here, and does not have it
            way_out = f"{error} Fetch the history first: git fetch --unshallow."
            raise Missing(Fixed.NOT_FETCHED, str(error), way_out) from error
    for path, inside in ahead:
        content = _by_history(top, inside, digests[path], _commit_in(root, top, commit))
        if content is None:
            raise _nowhere(root, top, path, inside, commit)
        found[path] = content
    return found


def _nowhere(root: Path, top: Path, path: str, inside: str, commit: str) -> Missing:
    there = _commit_in(root, top, commit)
    pointer = _POINTER.match(_blob(top, f"{there}:{inside}")) if there else None
    if pointer:
        return Missing(
            Fixed.IN_LFS, path, f"The older content of {path} is in git LFS and not here: git lfs fetch origin {there}"
        )
    return Missing(
        Fixed.NOT_KEPT,
        path,
        f"The older content of {path} is in no commit of {top}, and was not kept. Commit the files that a cell reads "
        "before its baseline is recorded, or accept the cell anew.",
    )


def _by_digest(top: Path, inside: str, digest: str) -> Content | None:
    """The object of that digest; of several, one that the file had."""
    names = git.ask(top, "rev-parse", f"--disambiguate={digest}").split()
    blobs = [name for name in names if git.ask(top, "cat-file", "-t", name) == "blob"]
    if len(blobs) > 1:
        blobs = [name for name in _versions(top, inside) if name in blobs]
    return Content(folder=top, object=blobs[0]) if blobs else None


def _by_history(top: Path, inside: str, digest: str, commit: str) -> Content | None:
    """One of the file's versions, as git writes it to the disk."""
    for version in [*([f"{commit}:{inside}"] if commit else []), *_versions(top, inside)][:MOST_VERSIONS]:
        for content in _written(top, inside, version):
            with contextlib.suppress(UsageError, OSError):
                if (digest_of_file(content.file) if content.file else digest_of(content.read())) == digest:
                    return content
    return None


def _written(top: Path, inside: str, version: str) -> Iterator[Content]:
    """What that version can be on the disk: git's object, that after git's filters, and the file that LFS has of it."""
    name = git.ask(top, "rev-parse", "--verify", "--quiet", "--end-of-options", version)
    if not name:
        return
    blob = _blob(top, name)
    yield Content(folder=top, object=name)
    if file := lfs_file(top, blob):
        yield Content(file=file)
    elif not _POINTER.match(blob):
        yield Content(folder=top, object=name, path=inside)


def _blob(top: Path, name: str) -> bytes:
    """The object, which a partial clone fetches; empty if there is none."""
    with contextlib.suppress(UsageError):
        return git.read(top, "cat-file", "blob", name)
    return b""


def lfs_file(top: Path, blob: bytes) -> Path | None:
    """The file that LFS has here for a pointer; None if it has none, and for what is no pointer."""
    pointer = _POINTER.match(blob[:_MOST_OF_POINTER])
    if not pointer:
        return None
    name = pointer.group(1).decode()
    common = (top / git.ask(top, "rev-parse", "--git-common-dir")).resolve()
    file = common / "lfs" / "objects" / name[:2] / name[2:4] / name
    return file if file.is_file() else None


def is_pointer(blob: bytes) -> bool:
    """Whether the content is a pointer of LFS."""
    return bool(_POINTER.match(blob[:_MOST_OF_POINTER]))


def _versions(top: Path, inside: str) -> list[str]:
    """The objects that the file was in any commit, the newest first."""
    found: dict[str, None] = {}
    log = git.ask(top, "log", "--all", "--format=", "--raw", "--no-abbrev", "--no-renames", "-m", "--", inside)
    for line in log.splitlines():
        fields = line.split()
        found |= {name: None for name in (fields[3:1:-1] if line.startswith(":") else []) if name.strip("0")}
    return list(found)


def _commit_in(root: Path, top: Path, commit: str) -> str:
    """The recorded commit in the repository, or what it has of a submodule; empty if it is not here."""
    known = git.commit_of(commit, root) if commit else ""
    if not known or top == root:
        return known
    row = git.ask(root, "ls-tree", "--full-tree", known, "--", top.relative_to(root).as_posix()).split()
    return git.commit_of(row[2], top) if len(row) > 2 and row[1] == "commit" else ""


def _fetch(root: Path, top: Path, commit: str) -> None:
    """Fetch the recorded commit if it is not here. Raises UsageError with git's message."""
    if not commit and git.is_shallow(top):
        raise UsageError(f"The clone {top} is shallow, and the record names no commit.")
    if commit and not git.commit_of(commit, root):
        _fetch_once(root, commit)
    known = git.commit_of(commit, root) if commit else ""
    if known and top != root and not _commit_in(root, top, commit):
        row = git.ask(root, "ls-tree", "--full-tree", known, "--", top.relative_to(root).as_posix()).split()
        if len(row) > 2 and row[1] == "commit":
            _fetch_once(top, row[2])


def _fetch_once(folder: Path, commit: str) -> None:
    if said := _fetched(folder, commit):
        raise UsageError(said)


@functools.cache
def _fetched(folder: Path, commit: str) -> str:
    """Why it could not be fetched, which is tried once; empty if it was."""
    if len(commit) < 40:
        return f"{folder} does not have the commit {commit}, and only a whole name can be fetched."
    try:
        git.fetch(commit, folder)
    except UsageError as error:
        return str(error)
    return ""


def have(commit: str, folder: Path) -> str:
    """The commit that the text names, which is fetched if it is a whole name and not here; empty if there is none."""
    if not git.commit_of(commit, folder) and re.fullmatch("[0-9a-f]{40}", commit):
        _fetched(folder, commit)
    return git.commit_of(commit, folder)


def recorded_in(root: Path, commit: str, paths: Collection[str]) -> dict[str, set[str]] | None:
    """The digests that these files can have had in the commit, none for a file that it lacks; None if the commit is
    not here. A shallow clone fetches it.
    """
    known = git.commit_of(commit, root) if commit else ""
    if commit and not known and git.is_shallow(root):
        known = have(commit, root)
    if not known:
        return None
    digests: dict[str, set[str]] = {}
    for top, some in _by_repository(root, paths).items():
        there = _commit_in(root, top, known)
        for path in some:
            inside = (root / path).relative_to(top).as_posix()
            contents = list(_written(top, inside, f"{there}:{inside}")) if there else []
            digests[path] = {
                digest_of_file(content.file) if content.file else digests_of(path, content.read())
                for content in contents
            }
    return digests
