"""Every command that takes cells takes those of scripts: of the project's table, and of a test's perf_script."""

import inspect
import re

import pytest

from perfsuite.cli.command_files import command_files
from perfsuite.cli.main import main
from perfsuite.errors import UsageError

CELL = "train-script-cpu_x1"
# What is given to a command besides the cell, and what it says as soon as it knows the cell.
COMMANDS = {
    "ab": (["ab", "--a", "here", "--b", "here", CELL], "are the same, so there is nothing to compare"),
    "memory": (["memory", CELL], ""),
    "time": (["time", CELL], ""),
    "upgrade": (["upgrade", "demo==2.0", "-k", CELL], "the releases are asked for"),
    "baseline": (["baseline", "show", "-k", CELL], ""),
}


@pytest.fixture(params=["table", "marker"])
def repository(request, tmp_path, monkeypatch):
    """A script and the test of its cell."""
    (tmp_path / "train.py").write_text("import torch\n")
    table, marker = "", 'perf_script("train.py", name="train")'
    if request.param == "table":
        table, marker = '[tool.perfsuite.scripts]\ntrain = "python train.py"\n', f'perf_cell("{CELL}")'
    (tmp_path / "pyproject.toml").write_text(f"{table}[tool.pytest.ini_options]\n")
    (tmp_path / f"test_{tmp_path.name}.py").write_text(  # a module of its own in this process
        f"import pytest\n\n@pytest.mark.{marker}\ndef test_train(perf_cell):\n    perf_cell.check()\n"
    )
    monkeypatch.chdir(tmp_path)


def asked(*_):
    raise UsageError("the releases are asked for.")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_takes_cells_takes_scripts(repository, monkeypatch, capsys, name):
    """Whatever it says then, it knows the script."""
    monkeypatch.setattr("perfsuite.features.upgrade.commands.upgrade.changes_of", asked)
    words, said = COMMANDS[name]
    main(words)
    printed = "".join(capsys.readouterr())

    assert "No model named" not in printed
    assert said in printed


def test_every_such_command_is_tested():
    """Those that make a cell of an id, other than what trains perfsuite's own cells."""
    take = re.compile(r"\b(parse_cell|cells_of|selected)\(")
    found = {name for name, file in command_files().items() if take.search(inspect.getsource(file.load()))}

    assert found - {"selftest"} <= set(COMMANDS)
