"""The command line: what it prints, how it fails, how it is stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main

KINDS = {"models": "model", "engines": "engine", "techniques": "technique", "hardware": "device", "studies": "study"}


def test_every_list_names_the_whole_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each table has a row for every definition, whose further lines are indented, in at most 120 columns."""
    monkeypatch.chdir(tmp_path)  # no project, which would add its scripts
    for what, kind in KINDS.items():
        assert main(["list", what]) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        printed = [line.split()[0].removesuffix("<n>") for line in lines if not line.startswith(" ")]

        assert max(map(len, lines)) <= 120
        assert set(printed) - {"cpu"} == set(Catalog().all(kind))


def test_a_project_s_scripts_are_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have a table of their own, which `perfsuite list` leaves out if there are none."""
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 0
    assert ["script", "command"] not in map(str.split, capsys.readouterr().out.splitlines())
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.scripts]\nmine = "python train.py"\n')
    assert [main(["list", what]) for what in ("models", "scripts")] == [0, 0]
    models, scripts = capsys.readouterr().out.split("\nscript ")

    assert "mine" not in models
    assert scripts.splitlines()[1].split() == ["mine", "python", "train.py"]


def test_a_refused_definition_is_listed_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine and a technique that cannot be had stand in their tables with the reason."""
    write_refused(tmp_path)

    assert main(["list", "--catalog", str(tmp_path)]) == 0
    printed = capsys.readouterr().out

    assert "refused: it needs a TPU" in printed
    assert "refused: nobody sells it" in printed


def test_a_path_below_a_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The system's error about an impossible path is reported without a traceback."""
    file = tmp_path / "file"
    file.write_text("")

    assert main(["selftest", "--all", "--json", str(file / "rows.json")]) == 2
    assert str(file) in capsys.readouterr().err


def test_an_ab_of_absent_hardware_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is launched, with what is here."""
    assert main(["ab", "--a", "zero2", "--b", "zero3", "--model", "gpt2_tiny", "--hardware", "b200_x8"]) == 2
    assert "b200_x8 is not here: this machine has" in capsys.readouterr().err


def write_refused(folder: Path) -> None:
    """A catalog with a refused engine and a refused technique."""
    for kind, text in (
        (
            "engines",
            "from perfsuite.catalog.definitions import Engine\n"
            "ENGINES = (Engine(name='mine', source='ours', refused='it needs a TPU'),)",
        ),
        (
            "techniques",
            "from perfsuite.catalog.definitions import Technique\n"
            "TECHNIQUES = (Technique(name='fp1', slot='precision', order=10, meaning='m', refused='nobody sells it'),)",
        ),
    ):
        (folder / kind).mkdir()
        (folder / kind / "mine.py").write_text(text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lst"], "No command named 'lst'. Did you mean 'list'?"),
        ([], "the following arguments are required: COMMAND"),
        (["list", "model"], "invalid choice: 'model'"),
        (["list", "--catalog", "nowhere"], "--catalog names nowhere, which is not a folder."),
        (["study", "zero2-vs-zeor3"], "Did you mean 'zero2-vs-zero3'?"),
        (["study", "zero2-vs-zero3", "--model", "bert"], "No model named 'bert'."),
        (["study", "zero2-vs-zero3", "--hardware", "cpu"], "needs a number of ranks"),
        (["study", "zero2-vs-zero3", "--hardware", "t4_x64"], "t4_x64 is not here"),
        (["study", "zero2-vs-zero3", "--steps", "0"], "argument --steps: '0' is below 1"),
        (
            ["study", "zero2-vs-zero3", "--steps", "x"],
            "argument --steps: 'x' is not a count: write a whole number, e.g.",
        ),
        (["study", "zero2-vs-zero3", "--capacity", "2 apples"], "is not an amount of memory"),
        (["study", "zero2-vs-zero3", "--rounds", "0"], "--rounds must be 1 or more, not 0."),
        (["study", "zero2-vs-zero3", "--tokens", "0"], "1 token or more"),
        (["time", "gpt2_tiny-single-cpu_x1"], "is measured neither in"),
        (["time", "gpt2_tiny"], "'gpt2_tiny' is not a cell"),
        (["time", "gpt2_tiny-single-cpu_x1", "--tokens", "1GB"], "argument --tokens: '1GB' is not a count"),
        (["fit", "t5_base", "--hardware", "t4_x1", "-b", "1.5"], "argument -b/--micro-batch: '1.5' is not a count"),
        (["time", "gpt2_tiny-single-cpu_x1", "--tokens", "0"], "A training needs 1 token or more."),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """What cannot be had is one line on stderr and exit code 2, before anything is measured or written."""
    monkeypatch.chdir(tmp_path)
    status: object
    try:
        status = main(arguments)
    except SystemExit as end:  # argparse's own
        status = end.code
    captured = capsys.readouterr()

    assert status == 2
    assert captured.err.startswith("perfsuite") and captured.err.count("\n") == 1
    assert sentence in captured.err
    assert captured.out == "" and list(tmp_path.iterdir()) == []


def test_a_broken_support_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of proofs that is torn is named."""
    (tmp_path / "support.json").write_text('{"format": 1, "entr')

    assert main(["list", "support", "--file", str(tmp_path / "support.json")]) == 2
    assert "support.json is not a support file" in capsys.readouterr().err


def test_no_torch() -> None:
    """The process of the command imports none of the heavy libraries, whatever it lists."""
    code = (
        "import sys; from perfsuite.cli.main import main; main(['list']);"
        "print(sorted({'torch', 'transformers', 'deepspeed', 'accelerate', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_quiet() -> None:
    """``perfsuite list | head -1`` ends without a traceback."""
    command = f"{sys.executable} -m perfsuite.cli.main list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert done.stderr == "" and done.stdout.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("PYTHONIOENCODING=ascii perfsuite list models", "gpt2_tiny "),
        ("mkdir gone && cd gone && rmdir ../gone && perfsuite list models", "The current folder is gone"),
    ],
)
def test_a_strange_terminal_is_no_traceback(command: str, said: str, tmp_path: Path) -> None:
    """One that has few characters, and one in a folder that was removed."""
    bare = command.replace("perfsuite", f"{sys.executable} -m perfsuite")
    done = subprocess.run(["bash", "-c", bare], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_and_resume(tmp_path: Path) -> None:
    """Ctrl-C ends the ranks and exits with 130; the same command then continues after the finished part."""
    out, temporary = tmp_path / "perf-studies" / "scaling", tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "perfsuite.cli.main", "study", "scaling", "--hardware", "cpu_x1"]
    command += ["--steps", "2", "--rounds", "1"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen(command, env=environment, **how) as first:
        assert first.stdout is not None
        next(line for line in first.stdout if line.startswith("[1/4]"))
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=60)
    kept = sorted(path.name for path in (out / "cells").iterdir())
    left = [path for path in temporary.rglob("*") if path.is_file() and "lock" not in path.name]
    second = subprocess.run(command, env=environment, timeout=300, check=True, **how)

    assert first.returncode == 130 and errors == "perfsuite: stopped.\n"
    assert kept and all(name.endswith(".json") for name in kept)
    assert left == []
    assert second.stdout.count("(kept from an earlier run)") == len(kept)
    assert (out / "scaling.csv").read_text().count("\n") == 5


def test_a_ctrl_c_during_the_imports_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command is imported before its options are read."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perfsuite.cli.main.CommandFile.load", interrupted)

    assert main(["list", "models"]) == 130
    assert capsys.readouterr().err == "perfsuite: stopped.\n"


def test_an_unknown_option_refers_to_the_commands_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "models", "--nosuch"])
    assert capsys.readouterr().err == "perfsuite list: unrecognized arguments: --nosuch. See perfsuite list --help.\n"
