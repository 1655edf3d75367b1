"""The git repository of a ladder: asv's x-axis is commits, so each rung is one, with its release's date and its lock.

Author, dates and content follow from the rung alone, and the user's git configuration is not read. So the same rungs
have the same hashes everywhere.
"""

import contextlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.records.codec import write_bytes

BRANCH = "main"


def commit(repository: Path, name: str, date: str, files: Mapping[str, str], message: str) -> str:
    """Add a rung after the others and return its hash. ``date`` is in ISO 8601; ``name`` becomes the tag."""
    if not (repository / ".git").is_dir():
        repository.mkdir(parents=True, exist_ok=True)
        _git(repository, "init", "--quiet", f"--initial-branch={BRANCH}")
    with contextlib.suppress(UsageError):  # before the first rung
        _git(repository, "checkout", "--quiet", "--force", BRANCH)
    for old in repository.iterdir():
        if old.is_file() and old.name not in files:
            old.unlink()
    for path, text in files.items():
        write_bytes(repository / path, text.encode())
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--allow-empty", "-m", message, date=date)
    _git(repository, "tag", "--force", name)
    return _git(repository, "rev-parse", "HEAD")


def show(repository: Path, revision: str, path: str) -> str:
    """The text of a file at a rung."""
    return _git(repository, "show", f"{revision}:{path}")


def _git(repository: Path, *arguments: str, date: str = "") -> str:
    """git's output, without the user's configuration. Raises UsageError with git's message if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    if date:
        moment = f"{datetime.fromisoformat(date).timestamp():.0f} +0000"
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "perfsuite", f"GIT_{role}_EMAIL": "perfsuite@localhost"}
            environment[f"GIT_{role}_DATE"] = moment
    return git.run(repository, *arguments, variables=environment)
