"""The core works without any feature, and each feature's folder may go."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_layers import FEATURES, KNOWN, imports, name_of

import perfsuite
from perfsuite.cli.command_files import command_files

ROOT = Path(perfsuite.__file__).parent
NAMES = sorted(path.name for path in (ROOT / FEATURES).iterdir() if (path / "__init__.py").is_file())
CELL = "gpt2_tiny-single-cpu_x1"
TEST = f"""
import pytest

@pytest.mark.perf_cell("{CELL}")
def test(perf_cell):
    perf_cell.check()
"""
SCRIPT = """
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(80):
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def inside(module: str) -> bool:
    """Whether it is a feature's."""
    return module.startswith(f"perfsuite.{FEATURES}.")


@pytest.fixture
def without(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the package, without this feature, and with a test of a cell."""
    package = tmp_path / ROOT.name
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(package / FEATURES / request.param)
    (tmp_path / "test_it.py").write_text(TEST)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    """The output of a command in that folder, whose package precedes the installed one."""
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_core_imports_no_feature() -> None:
    """Not in functions either: it finds their commands, and the hooks that they implement."""
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for name, path in KNOWN.items()
        if not inside(name)
        for line, module in imports(path)
        if inside(module)
    ]

    assert wrong == []


def test_no_class_of_the_core_is_named_after_a_feature() -> None:
    """Results, reasons and pages of a feature are its own: the core has what they are kinds of."""
    words = re.compile(r"Predict|Plan(?!e)|Night|Ladder|Emulat")
    classes = [
        f"{name_of(path)}: {node.name}"
        for name, path in KNOWN.items()
        if not inside(name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and words.search(node.name)
    ]

    assert classes == []


@pytest.mark.parametrize("without", NAMES, indirect=True)
def test_without_a_feature_its_commands_are_gone(without: Path, request: pytest.FixtureRequest) -> None:
    """All others are there, and the cells of the core are collected."""
    gone = f".{FEATURES}.{request.node.callspec.params['without']}."
    left = [name for name, file in command_files().items() if gone not in file.module]
    code = "from perfsuite.cli.command_files import command_files; print(*command_files())"

    assert run(without, "-c", code).split() == left
    assert "guard" in run(without, "-m", "perfsuite.cli.main", "--help").lower()
    assert CELL in run(without, "-m", "pytest", "--perf", "--collect-only", "-q", "test_it.py")


@pytest.mark.slow
@pytest.mark.parametrize("without", NAMES, indirect=True)
def test_without_a_feature_cells_and_scripts_are_measured(without: Path) -> None:
    """A cell against no baseline, which consent makes one, and a script."""
    (without / "train.py").write_text(SCRIPT)

    assert "1 passed" in run(without, "-m", "pytest", "--perf", "--perf-update=new", "test_it.py")
    assert " a step on " in run(without, "-m", "perfsuite.cli.main", "run", "--", sys.executable, "train.py")
