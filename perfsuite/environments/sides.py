"""The other side of a comparison: the repository with older content of some files, or as it was at a revision.

It is a copy of the working tree, with the files that git does not know and those that it ignores, in which only the
older files differ. A revision's copy has that commit's files, and the ignored ones of the working tree. Large files are
linked, not copied. Nothing is written into the user's repository.

The copies are in perfsuite's cache folder, named by a hash of everything that they depend on, and are built once. The
folder ``sides`` there may be deleted at any time.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from perfsuite.environments import git
from perfsuite.environments.commits import have
from perfsuite.environments.content import digest_of_file, of_content
from perfsuite.environments.contents import find
from perfsuite.environments.environments import Environment
from perfsuite.environments.git_contents import is_pointer, lfs_file
from perfsuite.environments.own_packages import installed_from
from perfsuite.errors import UsageError
from perfsuite.records.change import Change
from perfsuite.system.builds import kept
from perfsuite.system.paths import cache_folder, is_left_out

LARGE_BYTES = 2**16  # of a file that is linked
MOST_LINK_BYTES = 1024  # of a link's text
KEEP_SECONDS = 24 * 3600.0  # after its last use, before another copy of the same repository replaces a copy
FICLONE = 0x40049409  # a copy that shares its blocks until one of both is written (ioctl_ficlone(2))
SUBMODULE = "160000"  # the mode of one in a tree

Side = tuple[Environment, Path, Path]


def side_with(change: Change, repository: Path) -> Side:
    """The running environment with the recorded content of the user's files that differ; the repository's root, and the
    root of its copy. A change without contents is that to the revision ``before``.

    Raises UsageError if a content is nowhere.
    """
    if not change.contents:
        return at_revision(change.before, repository)
    root, installed = _root(repository), installed_from(_root(repository))
    recorded = dict(zip(change.files, change.contents, strict=True))
    wanted = {path: digest for path, digest in recorded.items() if digest}
    commit = change.before.removesuffix("-dirty")
    tree = {path: place for path, place in _files(root) if path not in recorded and path not in installed}
    tree |= {path: place for path, place in installed.items() if path not in recorded}

    def build(part: Path) -> None:
        contents = find(root, wanted, commit, installed)
        for path, place in tree.items():
            _place(place, part / path)
        for path, content in contents.items():
            content.write(part / path)
            if digest_of_file(part / path) != of_content(wanted[path]):
                raise UsageError(f"The older content of {path} is not what was recorded: {content}.")
            with contextlib.suppress(OSError):
                (part / path).chmod((root / path).stat().st_mode)
        for path in contents:
            _let_lead(part / path)

    names = [f"{path} {digest}" for path, digest in sorted(recorded.items())]
    copy = _kept(root, [*names, *_states(tree)], build)
    return _environment(root, copy, repository), root, copy


def at_revision(revision: str, repository: Path) -> Side:
    """The running environment with that revision of the repository in front; the repository's root, and the root of its
    copy. A package in ``src`` is found too, and a folder of the repository on PYTHONPATH is the copy's.

    Raises UsageError if git does not know the revision.
    """
    commit = have(revision, repository)
    if not commit:
        unknown = f"git knows no revision {revision!r} in {repository}"
        why = git.why_no_revision(repository)
        raise UsageError(why or f"{unknown}: write a branch, a tag or a commit of this repository.")
    root = _root(repository)
    ignored = {path: root / path for path in _ignored(root)}
    made = {path: place for path, place in installed_from(root).items() if path.endswith(tuple(EXTENSION_SUFFIXES))}

    def build(part: Path) -> None:
        _check_out(root, commit, part)
        for path, place in {**made, **ignored}.items():
            if not os.path.lexists(part / path):
                _place(place, part / path)

    copy = _kept(root, [commit, *_states({**made, **ignored})], build)
    return _environment(root, copy, repository), root, copy


def sources(folder: Path) -> list[Path]:
    """The folders of a repository's packages: its ``src``, if it has one, and itself."""
    return [path for path in (folder / "src", folder) if path.is_dir()]


def _root(repository: Path) -> Path:
    return git.repository_of(repository).resolve()


def _environment(root: Path, copy: Path, repository: Path) -> Environment:
    """The copy's folders precede all others, and stand for the repository's on PYTHONPATH."""

    def there(place: Path) -> Path:
        return copy / place.relative_to(root)

    inside = [Path(entry).resolve() for entry in sys.path if entry]
    imported = [there(place) for place in inside if place.is_relative_to(root) and not _is_left_out(place, root)]
    path = [*sources(there(repository.resolve())), *(one for one in imported if one.is_dir())]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {entry: Path(entry).resolve() for entry in known if entry}
    moved = [
        str(there(place)) if place.is_relative_to(root) else os.path.abspath(entry) for entry, place in folders.items()
    ]
    overrides = (("PYTHONPATH", os.pathsep.join(moved)),) if moved else ()
    here = Path.cwd().resolve()
    folder = there(here) if here.is_relative_to(root) else None
    return Environment(
        path=tuple(dict.fromkeys(map(str, path))),
        overrides=overrides,
        root=str(copy),
        folder=str(folder) if folder and folder.is_dir() else "",
    )


def _is_left_out(place: Path, root: Path) -> bool:
    parents = [place, *(parent for parent in place.parents if parent.is_relative_to(root) and parent != root)]
    return any(is_left_out(parent) for parent in parents if parent != root)


def _kept(root: Path, follows_from: list[str], build: Callable[[Path], None]) -> Path:
    """The copy of that content. Other copies of the repository that nobody has used for long are removed."""
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    folder = kept(f"sides/{name}", follows_from, build)
    with contextlib.suppress(OSError):
        os.utime(folder)
        for other in folder.parent.iterdir():
            if other.is_dir() and other.stat().st_mtime < time.time() - KEEP_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def _states(files: Mapping[str, Path]) -> Iterator[str]:
    for path, place in sorted(files.items()):
        with contextlib.suppress(OSError):
            state = place.lstat()
            yield f"{path} {state.st_size} {state.st_mtime_ns} {state.st_ino}"


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file and link below the root, by its path there."""
    cache = cache_folder().resolve()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [
            name for name in folders if name not in links and not is_left_out(here / name) and here / name != cache
        ]
        for name in [*links, *files]:
            place = here / name
            if (place.is_symlink() or place.is_file()) and not is_left_out(place):
                yield place.relative_to(root).as_posix(), place


def _ignored(root: Path) -> Iterator[str]:
    """The files that git ignores, without those of folders that no copy has; those of submodules, too."""
    cache = cache_folder().resolve()
    tops = [root, *(root / path for mode, _, path in git.tree("HEAD", root) if mode == SUBMODULE)]
    for top in tops:
        if not (top / ".git").exists():
            continue
        listed = git.run(top, "ls-files", "--others", "--ignored", "--exclude-standard", "-z").split("\0")
        for place in (top / path for path in listed if path):
            if not _is_left_out(place, root) and not place.is_relative_to(cache) and os.path.lexists(place):
                yield place.relative_to(root).as_posix()


def _check_out(top: Path, commit: str, target: Path) -> None:
    """Write the files of a commit, and those of its submodules. Raises UsageError."""
    target.mkdir(parents=True, exist_ok=True)
    index = target.with_name(f"{target.name}.index")
    variables = {**os.environ, "GIT_INDEX_FILE": str(index)}
    git.run(top, "read-tree", commit, variables=variables)
    git.run(top, "checkout-index", "--all", "--force", f"--prefix={target}/", variables=variables)
    index.unlink(missing_ok=True)
    for mode, digest, path in git.tree(commit, top):
        if mode == SUBMODULE:
            if (top / path / ".git").exists():
                _check_out_submodule(top, path, digest, target / path)
        else:
            _replace_pointer(top, path, target / path)


def _check_out_submodule(top: Path, path: str, commit: str, target: Path) -> None:
    if not have(commit, top / path):
        raise UsageError(
            f"The submodule {path} does not have the commit {commit[:12]}: git -C {top / path} fetch origin {commit}"
        )
    _check_out(top / path, commit, target)


def _replace_pointer(top: Path, path: str, file: Path) -> None:
    """Put the file that LFS has here in the place of its pointer, if the working tree has no pointers either."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > 1024:
        return
    blob = file.read_bytes()
    here = top / path
    if not is_pointer(blob) or (here.is_file() and here.stat().st_size <= 1024 and is_pointer(here.read_bytes())):
        return
    held = lfs_file(top, blob)
    if held is None:
        raise UsageError(f"The older content of {path} is in git LFS and not here: git lfs fetch --all")
    file.unlink()
    _place(held, file)


def _let_lead(file: Path) -> None:
    """Make the file a link if its content is that of one in git: where it leads, without a line end."""
    text = os.fsdecode(file.read_bytes()) if file.stat().st_size <= MOST_LINK_BYTES else ""
    if text and "\0" not in text and os.path.lexists(file.parent / text):
        file.unlink()
        file.symlink_to(text)


def _place(place: Path, target: Path) -> None:
    """A copy of a file or a link. A large file is cloned or linked: ranks only read it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if place.is_symlink() or place.stat().st_size < LARGE_BYTES:
            shutil.copy2(place, target, follow_symlinks=False)
            return
    except FileNotFoundError:  # an editor has just replaced it
        return
    if _cloned(place, target):
        return
    try:
        os.link(place, target)
    except OSError:  # on another file system, or another user's
        target.symlink_to(place)


def _cloned(place: Path, target: Path) -> bool:
    import fcntl  # missing on Windows, where commands that only read still work

    try:
        with place.open("rb") as source, target.open("wb") as made:
            fcntl.ioctl(made, FICLONE, source.fileno())
        shutil.copystat(place, target)
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True
