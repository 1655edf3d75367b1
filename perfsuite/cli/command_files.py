"""The commands by the files that have them: ``<room>/commands/<name>``, a file or a folder each, also of a feature.

``perfsuite --help`` reads two constants of each file without importing it. A command is imported when it is called.
"""

import ast
import contextlib
import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.errors import FileError, UsageError
from perfsuite.system.features import FEATURES, PACKAGE

ROOMS = Path(__file__).parents[1]
DEFINED = ("HELP", "QUESTION", "EXAMPLES", "PAGE", "arguments")  # by each command; one without actions has run(), too
COMMANDS = "commands"  # the folder of a room that has its commands
SITE = "https://OWNER.github.io/perfsuite"  # the docs, of which a command names its page
QUESTIONS = {  # that commands answer, as `perfsuite --help` groups them
    "guard": "Guard: is this worse than its baseline?",
    "compare": "Compare: which of two is better?",
    "predict": "Predict: will it fit, and how fast?",
    "history": "History: what changed over nights and releases?",
    "prove": "Prove: is a training right, and does the gate detect faults?",
}


@dataclass(frozen=True)
class CommandFile:
    """A command that need not be imported yet. ``path`` is its file, or the ``__init__.py`` of its folder."""

    name: str
    module: str
    path: Path

    def load(self) -> Any:
        """The module: its ``HELP``, ``QUESTION``, ``EXAMPLES``, ``PAGE``, ``arguments`` and ``run``.

        Raises FileError if it lacks one, and UsageError if it needs a feature that was taken away.
        """
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(f"{PACKAGE}."):
                raise
            raise UsageError(f"perfsuite {self.name} needs {error.name}, which is not installed.") from error
        for name in DEFINED:
            if not hasattr(module, name):
                raise FileError(f"{self.path} must define {name}: see CONTRIBUTING.md.")
        return module

    @property
    def help(self) -> str:
        """One sentence that says what the command does."""
        return self._text("HELP")

    @property
    def question(self) -> str:
        """The name of the question that the command answers. Raises FileError if there is no such question."""
        question = self._text("QUESTION")
        if question not in QUESTIONS:
            raise FileError(f"{self.path}: the QUESTION is {question!r}; it can be {', '.join(QUESTIONS)}.")
        return question

    def _text(self, constant: str) -> str:
        """The text that the file assigns in one line. It is not imported. Raises FileError if there is none."""
        begin = f"{constant} = "
        lines = self.path.read_text(encoding="utf-8").splitlines()
        values = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
        with contextlib.suppress(IndexError, SyntaxError, ValueError):
            return str(ast.literal_eval(values[0]))
        raise FileError(f'{self.path} must have one line {constant} = "…".')


@functools.cache
def command_files() -> Mapping[str, CommandFile]:
    """Every command, by its name, in the order of the alphabet."""
    found = {}
    for folder in (*ROOMS.glob(f"*/{COMMANDS}"), *FEATURES.glob(f"*/{COMMANDS}")):
        package = ".".join((ROOMS.name, *folder.relative_to(ROOMS).parts))
        for path in (*folder.glob("*.py"), *folder.glob("*/__init__.py")):
            name = path.parent.name if path.name == "__init__.py" else path.stem
            if path.parent != folder or path.name != "__init__.py":
                found[name] = CommandFile(name, f"{package}.{name}", path)
    return dict(sorted(found.items()))
