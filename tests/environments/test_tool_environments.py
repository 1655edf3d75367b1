"""A tool that runs commands in an environment of its choice, such as poetry, is asked for it; it may have its own."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from perfsuite.environments.training_python import training_python
from perfsuite.errors import UsageError
from perfsuite.launch.programs import program


def executable(path: Path, text: str) -> Path:
    """A program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, whose tool keeps an environment elsewhere and says where it was asked."""
    python = executable(tmp_path / "cache" / "bin" / "python", 'pwd >> "$(dirname "$0")/asked"; echo "$0"\n')
    executable(tmp_path / "bin" / "keeps", f'#!/bin/sh\nshift\necho Using it.\nshift\nexec sh {python} "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    project = tmp_path / "project"
    project.mkdir()
    return project


def test_a_tool_is_asked_in_the_project_and_once(folder: Path) -> None:
    """A copy has another path, by which the tool would choose another environment."""
    python = folder.parent / "cache" / "bin" / "python"
    words = ("keeps", "run", "python", "train.py")

    assert [training_python(folder, words) for _ in range(2)] == [str(python)] * 2
    assert (python.parent / "asked").read_text().split() == [str(folder)]


@pytest.mark.parametrize(
    "command", ["-n train torchrun train.py", "--live-stream -n train bash train.sh", "-p envs/train make train"]
)
def test_options_of_a_tool_stay_its_own(folder: Path, command: str) -> None:
    """As conda, mamba, micromamba and pixi have them: the tool knows which word is the program, and not which is not a
    value.
    """
    python = folder.parent / "cache" / "bin" / "python"
    named = 'while [ "$1" != train ] && [ "$1" != envs/train ]; do shift || exit 1; done; shift'
    executable(folder.parent / "bin" / "conda", f'#!/bin/sh\n{named}; exec sh {python} "$@"\n')

    assert training_python(folder, ("conda", "run", *command.split())) == str(python)


@pytest.mark.parametrize("words", [("false", "run", "python", "train.py"), ("keeps", "python", "train.py"), ()])
def test_what_does_not_say_it_leaves_the_usual_python(folder: Path, words: tuple[str, ...]) -> None:
    """So does what is no tool that runs commands."""
    assert training_python(folder, words) == training_python(folder)


def test_a_tool_with_an_environment_of_its_own_has_its_interpreter(folder: Path) -> None:
    """And torchrun is started by the Python that trains, wherever it was installed."""
    programs = folder.parent / "own" / "bin"
    executable(programs / "python", "")
    tool = executable(programs / "tool", f"#!{programs / 'python'}\n")
    ours = executable(folder / "ours", f"#!{sys.executable}\n")
    found = executable(folder / "found", "#!/usr/bin/env python\n")

    assert program([str(tool), "run"], [folder], sys.executable) == [str(tool), "run"]
    assert program([str(ours), "run"], [folder], sys.executable) == [sys.executable, str(ours), "run"]
    assert program([str(found)], [folder], sys.executable) == [sys.executable, str(found)]


@pytest.mark.parametrize(("words", "is_refused"), [("--sep | x", False), ("| tee log", True), ("a && b > c", True)])
def test_a_shells_sign_is_refused_unless_an_option_takes_it(words, is_refused, tmp_path):
    """A separator is an option's value; a pipe that was quoted would be the script's argument."""
    command = ["python", "train.py", *words.split()]
    with pytest.raises(UsageError, match="would be an argument") if is_refused else contextlib.nullcontext():
        assert program(command, [tmp_path], sys.executable) == [sys.executable, *command[1:]]
