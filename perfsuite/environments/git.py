"""git's commands, each in the repository of a folder."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from perfsuite.environments.bounded import output
from perfsuite.errors import UsageError


def run(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """git's output. Raises UsageError with git's message if it fails or is not installed."""
    return output(["git", "-C", str(folder), *arguments], variables).strip()


def ask(folder: Path, *arguments: str) -> str:
    """git's output; empty if it fails or is not installed."""
    with contextlib.suppress(UsageError):
        return run(folder, *arguments)
    return ""


def commit_of(text: str, folder: Path, *, digits: int = 40) -> str:
    """The hash of the commit that the text names; empty if there is none."""
    return ask(folder, "rev-parse", "--verify", f"--short={digits}", "--end-of-options", f"{text}^{{commit}}")


def repository_of(folder: Path) -> Path:
    """The top of the git repository that has the folder, or else the folder."""
    return Path(ask(folder, "rev-parse", "--show-toplevel") or folder).resolve()
