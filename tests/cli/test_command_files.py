"""A command is imported when it is called, and not to be listed."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.cli.command_files import QUESTIONS, SITE, CommandFile, command_files
from perfsuite.cli.main import main, parser_of
from perfsuite.errors import PerfsuiteError

DOCS = Path(__file__).parents[2] / "docs"
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
    assert imported("summary", "--help") == ["summary"]


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
        assert above == file.question == file.load().QUESTION
        assert file.help == file.load().HELP


GOOD = 'HELP = "h"\nQUESTION = "guard"\nEXAMPLES = ()\nPAGE = "tour"\ndef arguments(parser): ...\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("QUESTION", "ANSWER"), 'must have one line QUESTION = "…".'),
        (GOOD.replace('"h"', '(\n    "a"\n    "b"\n)'), 'must have one line HELP = "…".'),
        (GOOD.replace("guard", "gard"), "the QUESTION is 'gard'; it can be guard, compare, predict, history, prove."),
        (GOOD.replace("PAGE", "page"), "must define PAGE: see CONTRIBUTING.md."),
        (GOOD.replace("arguments", "options"), "must define arguments: see CONTRIBUTING.md."),
        (
            GOOD + "import perfsuite.features.gone",
            "perfsuite mine needs perfsuite.features.gone, which is not installed.",
        ),
    ],
)
def test_a_command_that_lacks_something_says_what(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named, and no traceback is seen."""
    path = tmp_path / f"command_{tmp_path.name}.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    command = CommandFile("mine", path.stem, path)

    with pytest.raises(PerfsuiteError, match=re.escape(says)):
        print(command.help, command.question, command.load())


@pytest.mark.parametrize(
    "words", [["summary", "--bri"], ["baseline", "show", "--kern", "native"], ["run", "--k", "foo", "--", "true"]]
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


@pytest.mark.parametrize("name", command_files())
def test_a_help_ends_with_examples_and_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example is a command line of that command, and the page is one of docs/."""
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    command = command_files()[name].load()
    examples, (more,) = shown[shown.index("examples:") + 1 : -2], shown[-1:]

    assert examples == list(command.EXAMPLES) != []
    assert more == f"more: {SITE}/{command.PAGE}.html" and (DOCS / f"{command.PAGE}.md").is_file()
    for example in examples:
        program, *words = shlex.split(example)
        assert program == "perfsuite" and words[0] == name
        parser_of([name]).parse_args(words)
    for action in _actions(name):
        with pytest.raises(SystemExit, match="0"):
            main([name, action, "--help"])
        printed = capsys.readouterr().out
        assert f"examples:\n  perfsuite {name} {action}" in printed and printed.rstrip().endswith(more)


def _actions(name: str) -> list[str]:
    """Of a command, such as those of ``baseline``."""
    (commands,) = (action for action in parser_of([name])._actions if isinstance(action, argparse._SubParsersAction))
    inner = commands.choices[name]._actions
    return [word for action in inner if isinstance(action, argparse._SubParsersAction) for word in action.choices]


COMPLETE = """
eval "$({perfsuite} --completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p perfsuite | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("su", "summary"),
        ("summary --br", "--brief"),
        ("baseline acc", "accept"),
        ("summary --conclusion can", "cancelled"),
        ("summary rep", "report.jsonl"),
    ],
)
def test_bash_completes_words(words: str, completed: str, tmp_path: Path) -> None:
    """Commands, their actions, options, choices and files, by the script that shtab makes."""
    (tmp_path / "report.jsonl").touch()
    script = COMPLETE.format(perfsuite=f"{sys.executable} -m perfsuite", words=f"perfsuite {words}")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.split() == completed.split()


def test_completion_says_what_it_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """shtab, and a shell that it knows."""
    assert main(["--completion", "cmd"]) == 2
    assert "No shell named 'cmd'. Known: bash," in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--completion", "bash"]) == 2
    assert 'pip install "perfsuite[completion]"' in capsys.readouterr().err
