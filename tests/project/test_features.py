"""The core works without any feature, and each feature's folder may go."""

import ast
import os
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
REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"
NAMES = sorted(path.name for path in (ROOT / FEATURES).iterdir() if (path / "__init__.py").is_file())
OF_FEATURES = (FEATURES, "project", "support", "data")  # folders of tests that may import features, or are imported
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
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    shutil.copytree(ROOT, tmp_path / ROOT.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / ROOT.name


@pytest.fixture
def without(request: pytest.FixtureRequest, package: Path) -> Path:
    """A folder with the package, without this feature, and with a test of a cell."""
    shutil.rmtree(package / FEATURES / request.param)
    (package.parent / "test_it.py").write_text(TEST)
    return package.parent


def run(folder: Path, *words: str) -> str:
    """The output of a command in that folder, whose package precedes the installed one, in ranks too."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_core_s_tests_import_no_feature() -> None:
    """Nor do the helpers that they import. Those of the whole project may, and what is tried and may be missing."""
    helpers = {path.stem: path for path in (TESTS / "support").glob("*.py")}
    waiting = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in OF_FEATURES]
    seen, wrong = set(waiting), []
    while waiting:
        path = waiting.pop()
        tried = {
            node.lineno
            for each in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(each, ast.With)
            for node in each.body
            if "ModuleNotFoundError" in ast.unparse(each.items[0])
        }
        for line, module in imports(path):
            if line in tried:
                continue
            if inside(module):
                wrong.append(f"{path.relative_to(TESTS)}:{line} imports {module}")
            if module in helpers and helpers[module] not in seen:
                seen.add(helpers[module])
                waiting.append(helpers[module])

    assert wrong == []


@pytest.mark.slow
def test_the_core_s_tests_pass_without_any_feature(package: Path) -> None:
    """All of them, in a copy of the repository."""
    for feature in NAMES:
        shutil.rmtree(package / FEATURES / feature)
    for path in REPOSITORY.iterdir():
        if path.is_dir() and path.name in ("benchmarks", "baselines", "docs", ".github"):
            (package.parent / path.name).symlink_to(path)
        elif path.is_file():
            shutil.copy(path, package.parent)
    left_out = shutil.ignore_patterns("__pycache__", FEATURES, "project")
    shutil.copytree(TESTS, package.parent / "tests", ignore=left_out)

    assert " passed" in run(package.parent, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests")


def test_the_example_of_a_feature_runs(package: Path, tmp_path: Path) -> None:
    """That of CONTRIBUTING.md, which a contributor starts from."""
    (text,) = re.findall(r"```python\n(# perfsuite/.*?)```", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.DOTALL)
    path = tmp_path / text.partition("\n")[0].removeprefix("# ")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (path.parents[1] / "__init__.py").write_text('"""Counts engines."""\n')
    said = run(tmp_path, "-m", "perfsuite.cli.main", "census", "--html", "census.html")

    assert "engines." in said
    assert "zero3" in (tmp_path / "census.html").read_text()
    assert "Count the engines." in run(tmp_path, "-m", "perfsuite.cli.main", "--help")


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
