"""A command is imported when it is called, and not to be listed."""

import subprocess
import sys

import pytest

from perfsuite.cli.command_files import QUESTIONS, command_files
from perfsuite.cli.main import main

LOADED = "print(sorted(name for name in sys.modules if 'commands' in name.split('.')[-2:-1]), file=sys.stderr)"


def imported(*words: str) -> list[str]:
    """The modules of commands that a process has after these words, by the last part of their names."""
    code = f"import sys\nfrom perfsuite.cli.main import main\ntry: main({list(words)!r})\nfinally: {LOADED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [name.rpartition(".")[2] for name in eval(done.stderr)]


def test_the_help_imports_no_command() -> None:
    """It reads the sentence and the question of each from its file."""
    assert imported("--help") == []


def test_only_the_command_that_is_called_is_imported() -> None:
    """Others may need packages that are not installed."""
    assert imported("list", "--help") == ["list"]


def test_the_help_has_every_command_once_below_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    """With the sentence that the command's own help has."""
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0]: at for at, line in enumerate(lines) if line.startswith("  ") and line[2] not in " -"}
    titles = {question: lines.index(title) for question, title in QUESTIONS.items()}

    assert sorted(listed) == list(command_files())
    for name, file in command_files().items():
        above = max((at, question) for question, at in titles.items() if at < listed[name])[1]
        assert above == file.text("QUESTION") == file.load().QUESTION
        assert file.text("HELP") == file.load().HELP


@pytest.mark.parametrize(
    "words", [["list", "--supp"], ["baseline", "show", "--kern", "native"], ["run", "--k", "foo", "--", "true"]]
)
def test_an_abbreviated_option_is_unknown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A new option would change what it means."""
    with pytest.raises(SystemExit, match="2"):
        main(words)

    assert "unrecognized arguments: --" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """For a report of a fault."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("perfsuite ")
