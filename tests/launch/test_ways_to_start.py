"""Every way in which people start perfsuite and their training: the environment that their shell would use trains.

perfsuite is installed alone, without torch. The environment that trains has torch and accelerate with what they
require, and nothing of perfsuite's. Both are made of links to what is installed here, so nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest
from package_index import Index, Upload, repacked, wheel
from packaging.requirements import Requirement
from small_scripts import LOOP

import perfsuite

PACKAGE = Path(perfsuite.__file__).parent
TOOLS = ("bash", "sh", "env", "make", "git", "g++", "as", "ld", "realpath", "dirname", "sed", "cat")
CHECKED = """\
import sys

assert {prefix!r} in (sys.prefix, ""), sys.prefix
"""
ENTRY = """\
#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""
PYPROJECT = """\
[project]
name = "mine"
version = "1"
requires-python = ">=3.11"
dependencies = ["torch"]
"""


def required(names: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions of these names, and all that they require without extras."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        distribution = metadata.distribution(waiting.pop())
        if distribution.name not in found:
            found[distribution.name] = distribution
            needs = map(Requirement, distribution.requires or ())
            waiting += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    return found


def environment(folder: Path, names: list[str]) -> Path:
    """A virtual environment of links to these distributions and what they require, with the scripts of the first."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    for distribution in required(names).values():
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).is_symlink() and not top.endswith((".pth", "-finder.py")):
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    for name in names:
        for entry in metadata.distribution(name).entry_points.select(group="console_scripts"):
            script = folder / "bin" / entry.name
            script.write_text(ENTRY.format(python=folder / "bin" / "python", module=entry.module, function=entry.attr))
            script.chmod(0o755)
    if not (site / "perfsuite").exists() and "perfsuite" in names:
        (site / "perfsuite").symlink_to(PACKAGE)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """perfsuite's own environment."""
    return environment(tmp_path_factory.mktemp("alone") / "perf", ["perfsuite"])


@pytest.fixture(scope="module")
def trains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that trains."""
    return environment(tmp_path_factory.mktemp("trains") / "train", ["torch", "accelerate", "numpy"])


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the system's programs, so that no Python of this machine is on PATH."""
    folder = tmp_path_factory.mktemp("tools")
    for tool in TOOLS:
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return folder


def stands_for(folder: Path, tool: str, text: str) -> None:
    """A program that does what that tool does with an environment that it has made: the tool cannot be had here."""
    (folder / tool).write_text(f"#!/bin/sh\n{textwrap.dedent(text)}\n")
    (folder / tool).chmod(0o755)


def started(folder: Path, *command: object, prefix: Path | None, variables: dict[str, str]) -> str:
    """What is printed by a command that runs in a project with train.py, which trains in that environment alone."""
    (folder / "train.py").write_text(CHECKED.format(prefix=str(prefix or "")) + LOOP)
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME") if name in os.environ}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(alone: Path) -> list[object]:
    """``perfsuite run --``, quickly."""
    return [alone / "bin" / "perfsuite", "run", "--launches", "1", "--"]


@pytest.mark.parametrize(
    "way",
    [
        "VIRTUAL_ENV",
        pytest.param(".venv", marks=pytest.mark.slow),
        pytest.param("CONDA_PREFIX", marks=pytest.mark.slow),
    ],
)
def test_the_environment_of_the_shell_trains(way: str, alone: Path, trains: Path, tools: Path, tmp_path: Path) -> None:
    """The active one, the project's own, or conda's, whose prefix is no virtual environment's in name only."""
    variables = {"PATH": str(tools)}
    if way == ".venv":
        (tmp_path / way).symlink_to(trains)
    else:
        variables[way] = str(trains)
    prefix = tmp_path / way if way == ".venv" else trains

    assert " a step on " in started(tmp_path, *run(alone), "python", "train.py", prefix=prefix, variables=variables)


@pytest.mark.slow
def test_python_on_path_trains(alone: Path, trains: Path, tools: Path, tmp_path: Path) -> None:
    """perfsuite's own folder is first there, as in an environment that is active, and has no torch."""
    path = os.pathsep.join(map(str, [alone / "bin", trains / "bin", tools]))

    assert " a step on " in started(
        tmp_path, "perfsuite", *run(alone)[1:], "python", "train.py", prefix=trains, variables={"PATH": path}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["./env/bin/python", "train.py"],
        ["bash", "train.sh"],
        ["make", "train"],
        ["torchrun", "--standalone", "--nproc-per-node", "1", "train.py"],
        ["accelerate", "launch", "--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no",
         "--dynamo_backend", "no", "train.py"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_starts_python_finds_the_environment(
    command: list[str], alone: Path, trains: Path, tools: Path, tmp_path: Path
) -> None:
    """A relative interpreter, a shell script, make and console scripts."""
    (tmp_path / "env").symlink_to(trains)
    (tmp_path / "train.sh").write_text("set -e\npython train.py\n")
    (tmp_path / "Makefile").write_text("train:\n\tpython train.py\n")
    variables = {"PATH": str(tools), "VIRTUAL_ENV": str(trains)}
    prefix = tmp_path / "env" if command[0].startswith(".") else trains

    assert " a step on " in started(tmp_path, *run(alone), *command, prefix=prefix, variables=variables)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["uv", "run"], ["poetry", "run"], ["conda", "run", "-n", "train"], ["pixi", "run"]]
)
def test_a_project_tool_runs_the_project_s_environment(
    command: list[str], alone: Path, trains: Path, tools: Path, tmp_path: Path
) -> None:
    """uv is the real one. The others cannot be had here: what stands for them does what they do with an environment.
    In the copy of the project, which has no .venv, uv and poetry would make another one.
    """
    own = tmp_path / "tools"
    own.mkdir()
    stands_for(own, "poetry", 'shift; PATH="$VIRTUAL_ENV/bin:$PATH" exec "$@"')
    stands_for(own, "conda", f'shift 3; PATH="{trains}/bin:$PATH" exec "$@"')
    stands_for(own, "pixi", f'shift; PATH="{trains}/bin:$PATH" exec "$@"')
    if uv := shutil.which("uv"):
        (own / "uv").symlink_to(uv)
    elif command[0] == "uv":
        pytest.skip("uv is not installed here.")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / ".venv").symlink_to(trains)
    variables = {"PATH": f"{own}{os.pathsep}{tools}", "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
    prefix = None if command[0] in ("conda", "pixi") else project / ".venv"

    assert " a step on " in started(
        project, *run(alone), *command, "python", "train.py", prefix=prefix, variables=variables
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index with a wheel of perfsuite and what it requires."""
    folder = tmp_path_factory.mktemp("wheels")
    about = metadata.distribution("perfsuite")
    files = {
        str(path.relative_to(PACKAGE.parent)): path.read_text()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    entries = "[console_scripts]\nperfsuite = perfsuite.cli.main:main\n"
    files["perfsuite-1.0.dist-info/entry_points.txt"] = entries
    needs = [need for need in about.requires or () if "extra ==" not in need]
    others = [name for name in required(["perfsuite"]) if name != "perfsuite"]
    wheels = [wheel(folder, "perfsuite", "1.0", needs=needs, files=files), *(repacked(folder, name) for name in others)]
    with Index([Upload(path, datetime(2026, 1, 1, tzinfo=UTC)) for path in wheels]).serve() as served:
        yield served.address


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uvx", "uv tool install", "pipx"])
def test_a_tool_that_installs_perfsuite_alone(tool: str, index: str, trains: Path, tools: Path, tmp_path: Path) -> None:
    """From an index, into an environment of its own, in a fresh home."""
    program = tool.partition(" ")[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed here.")
    project, programs = tmp_path / "project", tmp_path / "programs"
    project.mkdir()
    programs.mkdir()
    for name in ("uv", "uvx", "pipx"):  # which uses uv
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    (project / ".venv").symlink_to(trains)
    variables = {
        "PATH": os.pathsep.join(map(str, [tmp_path / "bin", programs, tools])),
        "HOME": str(tmp_path),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_DEFAULT_INDEX": index,
        "UV_PYTHON": sys.executable,
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_TOOL_DIR": str(tmp_path / "uv"),
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }
    command: list[str] = {"uvx": ["uvx", "perfsuite"], "pipx": ["pipx", "run", "perfsuite"]}.get(tool, ["perfsuite"])
    if tool == "uv tool install":
        kept = {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
        subprocess.run([*tool.split(), "--quiet", "perfsuite"], env=kept | variables, check=True)
    words = [*command, "run", "--launches", "1", "--", "python", "train.py"]

    assert " a step on " in started(project, *words, prefix=project / ".venv", variables=variables)


def test_without_torch_it_is_said_where_was_looked(alone: Path, tools: Path, tmp_path: Path) -> None:
    """In one sentence, before anything runs."""
    (tmp_path / "train.py").touch()
    bare = environment(tmp_path / ".venv", ["packaging"])
    variables = {"PATH": str(tools), "HOME": str(tmp_path)}
    command = [str(word) for word in [*run(alone), "python", "train.py"]]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 2 and done.stdout == ""
    assert (
        f"{bare}/bin/python has no torch. Activate the environment that trains, or install torch there." in done.stderr
    )
    for place in ("VIRTUAL_ENV: none", ".venv", "CONDA_PREFIX: none", "PATH: none"):
        assert place in done.stderr


@pytest.mark.slow
def test_without_a_compiler_it_is_said_what_to_install(alone: Path, trains: Path, tools: Path, tmp_path: Path) -> None:
    """In one sentence, without a traceback of perfsuite's."""
    own = tmp_path / "tools"
    shutil.copytree(tools, own, symlinks=True)
    (own / "g++").unlink()
    (tmp_path / "train.py").write_text(LOOP)
    variables = {"PATH": str(own), "HOME": str(tmp_path), "VIRTUAL_ENV": str(trains)}
    command = [str(word) for word in [*run(alone), "python", "train.py"]]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "there is no C++ compiler: install g++." in done.stdout and "Traceback" not in done.stdout
    assert 'File "' not in done.stdout
