"""benchmarks/first_gpu.py on a machine that lacks what it installs with."""

import subprocess
import sys
from pathlib import Path

import pytest

FIRST_GPU = Path(__file__).parents[2] / "benchmarks" / "first_gpu.py"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python as uv makes it: without pip, and without perfsuite."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize(("action", "module"), [("collect", "uv"), ("measure", "pip")])
def test_what_is_missing_is_said(action: str, module: str, bare: Path, tmp_path: Path) -> None:
    """In one sentence with the way out."""
    (tmp_path / "names.txt").write_text("msgspec\n")
    command: list[str | Path] = [bare, FIRST_GPU, action, tmp_path / "results"]
    if action == "measure":
        command += ["--wheels", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(f"{bare} has no {module}: install it")
    assert len(done.stderr.splitlines()) == 1
