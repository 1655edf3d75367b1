"""git's commands, each in the repository of a folder."""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from perfsuite.environments.bounded import output
from perfsuite.errors import UsageError

GIT = ("git", "--no-replace-objects")  # a commit has the files that were committed, whatever this clone puts there
FETCHED = "refs/perfsuite/fetched"  # keeps what a shallow clone fetched; git's own commands leave it alone


def run(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """git's output. Raises UsageError with git's message if it fails or is not installed."""
    return output([*GIT, "-C", str(folder), *arguments], variables).strip()


def ask(folder: Path, *arguments: str) -> str:
    """git's output; empty if it fails or is not installed."""
    with contextlib.suppress(UsageError):
        return run(folder, *arguments)
    return ""


def read(folder: Path, *arguments: str, given: str = "") -> bytes:
    """git's output as bytes; ``given`` is its input. Raises UsageError with git's message."""
    command = [*GIT, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, input=given.encode(), capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"git cannot run: {error.strerror}.") from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise UsageError(f"git {arguments[0]} … failed: {said}")
    return done.stdout


def commit_of(text: str, folder: Path, *, digits: int = 40) -> str:
    """The hash of the commit that the text names; empty if there is none."""
    return ask(folder, "rev-parse", "--verify", f"--short={digits}", "--end-of-options", f"{text}^{{commit}}")


def repository_of(folder: Path) -> Path:
    """The top of the git repository that has the folder, also if git refuses to read it; or else the folder."""
    if top := ask(folder, "rev-parse", "--show-toplevel"):
        return Path(top).resolve()
    place = folder.resolve()
    return next((one for one in (place, *place.parents) if _is_repository(one)), place)


def _is_repository(folder: Path) -> bool:
    return (folder / ".git" / "HEAD").is_file() or (folder / ".git").is_file()


def problem(folder: Path) -> str:
    """git's message if it cannot read the repository of this folder; empty if it can, and outside of a repository."""
    try:
        run(folder, "rev-parse", "--git-dir")
    except UsageError as error:
        return str(error) if _is_repository(repository_of(folder)) else ""
    return ""


def is_inside(folder: Path) -> bool:
    """Whether the folder is in a repository, also if git refuses to read it."""
    return bool(ask(folder, "rev-parse", "--git-dir")) or _is_repository(repository_of(folder))


def why_no_revision(folder: Path) -> str:
    """Why the folder has no revisions: git's message, or that it is in no repository. Empty if it may have some."""
    without = f"{folder} is in no git repository, so it has no revisions: git init begins one, and git commit adds one."
    return problem(folder) or ("" if is_inside(folder) else without)


def ignored(files: Iterable[Path], folder: Path) -> list[str]:
    """Those of the files that git ignores, so no commit has them, by their paths in the folder."""
    names = [os.path.relpath(file, folder) for file in files]
    return ask(folder, "check-ignore", "--", *names).splitlines() if names else []


def fetch(commit: str, folder: Path) -> None:
    """Fetch a commit of which this clone has nothing. A shallow clone stays one. Raises UsageError with git's message.

    git never asks for a password here.
    """
    remotes = ask(folder, "remote").split()
    if not remotes:
        raise UsageError(f"The repository {folder} has no remote to fetch {commit[:12]} from.")
    remote = "origin" if "origin" in remotes else remotes[0]
    depth = ["--depth=1"] if is_shallow(folder) else []
    quiet = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules"]
    variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    where = f"{commit}:{FETCHED}/{commit}"
    run(folder, "fetch", *quiet, *depth, "--refmap=", remote, where, variables=variables)


def objects(names: Iterable[str], folder: Path) -> list[str]:
    """The hash of the file's content that each of these names stands for; empty for none, and for several."""
    asked = "".join(f"{name}\n" for name in names)
    with contextlib.suppress(UsageError):
        rows = [line.split() for line in read(folder, "cat-file", "--batch-check", given=asked).decode().splitlines()]
        return [row[0] if row[1:2] == ["blob"] else "" for row in rows]
    return [""] * asked.count("\n")


def is_shallow(folder: Path) -> bool:
    """Whether the clone has only a part of its history."""
    return ask(folder, "rev-parse", "--is-shallow-repository") == "true"


def tree(commit: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Mode, hash and path of everything in a commit. Raises UsageError with git's message."""
    for row in run(folder, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0"):
        if row:
            about, _, path = row.partition("\t")
            mode, _, digest = about.split(" ")
            yield mode, digest, path
