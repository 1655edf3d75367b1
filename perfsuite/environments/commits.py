"""The commit of a record: in a repository, in its submodules, and fetched if a clone does not have it."""

import functools
import re
from pathlib import Path

from perfsuite.environments import git
from perfsuite.errors import UsageError


def commit_in(root: Path, top: Path, commit: str) -> str:
    """The recorded commit in the repository, or what it has of a submodule; empty if it is not here."""
    known = git.commit_of(commit, root) if commit else ""
    if not known or top == root:
        return known
    row = git.ask(root, "ls-tree", "--full-tree", known, "--", top.relative_to(root).as_posix()).split()
    return git.commit_of(row[2], top) if len(row) > 2 and row[1] == "commit" else ""


def fetch(root: Path, top: Path, commit: str) -> None:
    """Fetch the recorded commit if it is not here. Raises UsageError with git's message."""
    if not commit and git.is_shallow(top):
        raise UsageError(f"The clone {top} is shallow, and the record names no commit.")
    if commit and not git.commit_of(commit, root):
        _fetch_once(root, commit)
    known = git.commit_of(commit, root) if commit else ""
    if known and top != root and not commit_in(root, top, commit):
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
