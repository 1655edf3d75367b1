"""Red cells as annotations of a pull request, by the workflow commands that GitHub reads in a job's output.

The syntax and its escapes: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions and
actions/toolkit, packages/core/src/command.ts.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from perfsuite.compare.hurts import worst_of
from perfsuite.environments import git
from perfsuite.records.change import ChangeKind
from perfsuite.records.result import CellResult, Result
from perfsuite.records.suspects import place_of
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import headline

DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
PROPERTY = DATA | str.maketrans({":": "%3A", ",": "%2C"})


class Annotations:
    """Writes a line for each red cell, at a line of the user's code or at the cell's test."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder, self.plugins = config.rootpath, config.pluginmanager
        self.repository = git.repository_of(config.rootpath)

    def send(self, result: CellResult, is_red: bool) -> None:
        """Write it, if it is red."""
        if not is_red:
            return
        file, line = self._place(result)
        text = render(result.verdict, result.failure)
        terminal: Any = self.plugins.get_plugin("terminalreporter")
        terminal.write_line(annotation(file, line, headline(result.verdict), text))

    def close(self) -> str:
        """Its lines say where they are."""
        return ""

    def _place(self, result: CellResult) -> tuple[str, int]:
        """File and line, relative to the repository: the line of the user's code that the worst metric comes from, or
        else the first change of a file that may be the cause, or else the test.
        """
        worst = worst_of(result.verdict)
        lines = [place_of(move.line) for move in (worst.moves if worst else []) if move.line]
        trial = result.verdict.trial
        blamed = [change for cause in (trial.causes if trial else []) for change in cause.changes]
        code = [change for change in blamed or result.verdict.changed if change.kind == ChangeKind.CODE]
        for file, line in [*lines, *((file, 0) for change in code for file in change.files)]:
            if (self.repository / file).is_file():
                return file, line or first_changed(self.repository, _commit_of(result), file)
        test = self.folder / result.test.partition("::")[0]
        return Path(os.path.relpath(test, self.repository)).as_posix(), 1


def _commit_of(result: CellResult) -> str:
    """That of the baseline; empty if it has none."""
    return result.baseline.commit if isinstance(result, Result) and result.baseline else ""


def first_changed(repository: Path, commit: str, file: str) -> int:
    """The first line of the file that is not that of the commit; 1 if git does not know."""
    diff = git.ask(repository, "diff", "--unified=0", "--end-of-options", commit, "--", file) if commit else ""
    hunk = next((line for line in diff.splitlines() if line.startswith("@@ ")), "@@ -1 +1 @@")
    return max(1, int(hunk.split()[2].removeprefix("+").partition(",")[0]))


def annotation(file: str, line: int, title: str, message: str) -> str:
    """``::error file=train.py,line=14,title=…::message``, in one line."""
    properties = {"file": file, "line": str(line), "title": title}
    named = ",".join(f"{name}={value.translate(PROPERTY)}" for name, value in properties.items())
    return f"::error {named}::{message.translate(DATA)}"
