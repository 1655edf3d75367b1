"""A command's script must be there, where perfsuite can know it: a launcher says it at length, after some seconds."""

from pathlib import Path

import pytest

from perfsuite.catalog.scripts import check_script
from perfsuite.errors import UsageError


@pytest.mark.parametrize(
    "command",
    [
        "python tran.py",
        "OMP_NUM_THREADS=2 python3 tran.py --config train.py",
        "torchrun --nproc-per-node 2 tran.py",
        "/usr/bin/python tran.py",
    ],
)
def test_a_script_that_is_not_there(tmp_path: Path, command: str) -> None:
    """One sentence with the file, the folder and the nearest name."""
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match=r"^There is no file tran\.py in .*\. Did you mean train\.py\?$"):
        check_script(command.split(), tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --config other.py",
        "python -m train --file other.py",
        "torchrun --nproc-per-node 2 -m pkg.train other.py",
        "bash -c 'cd elsewhere && python other.py'",
        "make other.py",
        "uv run other.py",
    ],
)
def test_what_perfsuite_cannot_know_is_left_to_the_launcher(tmp_path: Path, command: str) -> None:
    """Modules, shells and tools that go elsewhere."""
    (tmp_path / "train.py").touch()

    check_script(command.split(), tmp_path)


@pytest.mark.parametrize(("command", "sentence"), [("", "Give what trains"), ("python -u", "python -u trains nothing")])
def test_a_command_without_a_script(tmp_path: Path, command: str, sentence: str) -> None:
    """A Python alone would wait for what is typed."""
    with pytest.raises(UsageError, match=sentence):
        check_script(command.split(), tmp_path)
