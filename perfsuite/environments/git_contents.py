"""Contents in git: by their digest, in every commit that changed the file, after filters, and in LFS."""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from perfsuite.environments import git
from perfsuite.environments.commits import commit_in, fetch, have
from perfsuite.environments.content import Content, Missing, digest_of, digest_of_file, digests_of
from perfsuite.errors import UsageError
from perfsuite.records.change import Fixed

MOST_VERSIONS = 200  # of a file, whose contents are computed from what git has
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
_MOST_OF_POINTER = 1024


def by_repository(root: Path, paths: Iterable[str]) -> dict[Path, list[str]]:
    """The files by the top of the repository that has them: ``root``, or that of a submodule."""
    tops: dict[Path, list[str]] = {}
    for path in paths:
        inside = [parent for parent in (root / path).parents if parent.is_relative_to(root)]
        tops.setdefault(next((one for one in inside if (one / ".git").exists()), root), []).append(path)
    return tops


def in_git(root: Path, top: Path, digests: Mapping[str, str], commit: str) -> dict[str, Content]:
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
        if content := _by_digest(top, inside, digest) or _by_history(top, inside, digest, commit_in(root, top, commit)):
            found[path] = content
        else:
            ahead.append((path, inside))
    if not ahead:
        return found
    try:
        fetch(root, top, commit)
    except UsageError as error:
        if git.is_shallow(top):  # else the whole history is here, and does not have it
            way_out = f"{error} Fetch the history first: git fetch --unshallow."
            raise Missing(Fixed.NOT_FETCHED, str(error), way_out) from error
    for path, inside in ahead:
        content = _by_history(top, inside, digests[path], commit_in(root, top, commit))
        if content is None:
            raise _nowhere(root, top, path, inside, commit)
        found[path] = content
    return found


def _nowhere(root: Path, top: Path, path: str, inside: str, commit: str) -> Missing:
    there = commit_in(root, top, commit)
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
        for content in written(top, inside, version):
            with contextlib.suppress(UsageError, OSError):
                if (digest_of_file(content.file) if content.file else digest_of(content.read())) == digest:
                    return content
    return None


def written(top: Path, inside: str, version: str) -> Iterator[Content]:
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
    for top, some in by_repository(root, paths).items():
        there = commit_in(root, top, known)
        for path in some:
            inside = (root / path).relative_to(top).as_posix()
            contents = list(written(top, inside, f"{there}:{inside}")) if there else []
            digests[path] = {
                digest_of_file(content.file) if content.file else digests_of(path, content.read())
                for content in contents
            }
    return digests
