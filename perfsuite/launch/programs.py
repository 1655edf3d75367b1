"""The program that a user's command starts: whether it is there, and by which Python it runs."""

import difflib
import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from perfsuite.catalog.scripts import PYTHONS, STARTERS, assignments, check_script
from perfsuite.environments.training_python import require_torch, training_python
from perfsuite.errors import UsageError

SHELL_SIGNS = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"))  # whole words of a quoted command
SHELLS_OWN = (".", "cd", "export", "source")


def check_command(words: Sequence[str], folder: Path) -> None:
    """Raise UsageError for a command that cannot start: it names no program, no script that is there, or a Python
    without torch.
    """
    check_script(words, folder)
    words = assignments(words)[1]
    python = training_python(folder, tuple(words))
    program(words, [folder], python)
    if words[0] in PYTHONS:
        require_torch(python, folder)


def program(words: Sequence[str], folders: Sequence[Path], python: str) -> list[str]:
    """The command for the environment's Python, which also runs a launcher that is a Python script, unless that has an
    environment of its own, as pipx gives poetry one. A program with a relative path is in the first of the folders that
    has it: a copy has no virtual environment.

    Raises UsageError if there is no such program.
    """
    first, *rest = words
    for before, word in itertools.pairwise(words):
        if word in SHELL_SIGNS and not before.startswith("-"):  # an option may take one, such as a separator
            way = "put the commands into a file, and write bash FILE.sh"
            raise UsageError(f"{word} would be an argument of the script: {way}.")
    if first in PYTHONS:
        return [python, *rest]
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
    there = [place for folder in folders if (place := folder / first).is_file()]
    found = (str(there[0]) if there else None) if "/" in first else shutil.which(first, path=path)
    if not found:
        raise UsageError(f"There is no program {first}. {_instead(first)}")
    if found.endswith(".py"):
        return [python, found, *rest]
    with open(found, "rb") as file:
        line = file.readline(200)
    interpreter = Path(os.fsdecode(line[2:]).strip())
    theirs = {Path(one).parent.resolve() for one in (python, sys.executable)}
    if line.startswith(b"#!") and b"python" in line:
        has_own = interpreter.is_file() and interpreter.parent.resolve() not in theirs
        return [found, *rest] if has_own else [python, found, *rest]
    if not os.access(found, os.X_OK):
        raise UsageError(f"{first} may not be executed: write bash {first}, or chmod +x {first}.")
    return [found, *rest]


def _instead(first: str) -> str:
    """What to write instead of a program that is not there."""
    if " " in first:
        return "To give a command with its arguments, leave out the quotes around the whole command."
    if starter := {".py": "python", ".sh": "bash"}.get(Path(first).suffix):
        return f"Write {starter} {first}."
    if first in SHELLS_OWN:
        return f"Only a shell knows it: write bash -c '{first} … && python train.py'."
    near = difflib.get_close_matches(first, STARTERS, n=1)
    return f"Did you mean {near[0]}?" if near else "Give the command as in a shell, such as python train.py."
