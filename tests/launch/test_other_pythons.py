"""perfsuite measures training environments of other Pythons, and runs in other Pythons itself: those that are here."""

import functools
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from small_scripts import LOOP

from perfsuite.environments.lockfile import find_python
from perfsuite.environments.uv import uv_command, uv_variables
from perfsuite.errors import UsageError
from perfsuite.launch.rank_packages import rank_packages
from perfsuite.rank.script.needs import NEEDS, OLDEST

REPOSITORY = Path(__file__).parents[2]
OLDEST_OF_PERFSUITE = 11  # the minor version


@functools.cache
def other_pythons() -> dict[tuple[int, int], str]:
    """The interpreters of other minor versions that this machine has."""
    found = {}
    for minor in range(9, 15):
        try:
            version, path = find_python(f"3.{minor}")
        except UsageError:
            continue
        if version == f"3.{minor}" and minor != sys.version_info.minor:
            found[3, minor] = path
    return found


@pytest.fixture(autouse=True)
def _downloads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "300")  # seconds: torch's CUDA build has files of half a gigabyte


def run(*command: object, folder: Path = REPOSITORY, **variables: str) -> subprocess.CompletedProcess[str]:
    """The finished command, in none of the environments that are active here."""
    kept = {name: value for name, value in uv_variables().items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, env=kept | variables, capture_output=True, text=True, check=False)


def test_what_waits_for_torch_needs_the_standard_library_alone() -> None:
    """Each Python of a command is watched: that of a build tool may be old, and has nothing of perfsuite's."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import perfsuite.rank.script.boot as boot; boot.boot(); "
    code += "print(sorted(name for name in sys.modules if name.partition('.')[0] in sys.argv[2:]))"
    for python in (sys.executable, *other_pythons().values()):
        done = run(python, "-I", "-S", "-c", code, REPOSITORY, *NEEDS)
        assert (done.stdout, done.stderr) == ("[]\n", ""), python


def test_an_old_python_is_refused_by_its_number() -> None:
    """Python 3.9 lacks what a rank's code is written in."""
    old = [path for version, path in other_pythons().items() if version < OLDEST]
    code = "import sys; sys.path.insert(0, sys.argv[1]); from perfsuite.rank.script.needs import provide; provide({})"
    for python in old:
        done = run(python, "-I", "-S", "-c", code, REPOSITORY)
        assert "perfsuite measures Python 3.10 and newer" in done.stderr.splitlines()[-1]
    if not old:
        pytest.skip("This machine has no Python 3.9.")


def test_for_the_same_python_they_are_perfsuite_s_own() -> None:
    """Nothing is installed, and nothing else of perfsuite's environment can be imported."""
    folder = rank_packages(sys.executable, EXTENSION_SUFFIXES[0], sys.version_info[:2])
    code = f"import sys; sys.path.append({str(folder)!r}); import {', '.join(NEEDS)}; import pytest"
    done = run(sys.executable, "-I", "-S", "-c", code)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'pytest'"


def packages_in(environment: Path) -> set[str]:
    """What is installed there."""
    return {found.name for found in environment.glob("lib/python*/site-packages/*") if found.name != "__pycache__"}


@pytest.mark.network
@pytest.mark.parametrize("minor", range(10, 15))
def test_another_python_trains_and_guards(minor: int, tmp_path: Path) -> None:
    """Its environment has torch and numpy, and nothing of perfsuite's before and after a script was measured in it.
    Then perfsuite is installed there, and guards the script.
    """
    if (3, minor) not in other_pythons():
        pytest.skip(f"This machine has no Python 3.{minor} apart from the one that runs.")
    environment, project = tmp_path / "environment", tmp_path / "project"
    python = environment / "bin" / "python"
    constraints = (REPOSITORY / "constraints.txt").read_text().splitlines()
    torch = next(line for line in constraints if line.startswith("torch=="))
    assert run(other_pythons()[3, minor], "-m", "venv", environment).returncode == 0
    install = (*uv_command(), "pip", "install", "--quiet", "--python", python)  # links torch's gigabytes from one cache
    installed = run(*install, torch, "numpy")
    assert installed.returncode == 0, installed.stderr
    before = packages_in(environment)
    project.mkdir()
    (project / "train.py").write_text(LOOP)

    done = run(sys.executable, "-m", "perfsuite", "run", "--", python, "train.py", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ms a step" in done.stdout and packages_in(environment) == before

    if minor < OLDEST_OF_PERFSUITE:
        return
    for command in (
        (*install, "-e", REPOSITORY),
        ("git", "init", "--quiet"),
        (python, "-m", "perfsuite", "init", "--", "python", "train.py"),
        (python, "-m", "pytest", "--perf", "--perf-update=new"),
        (python, "-m", "pytest", "--perf"),
    ):
        done = run(*command, folder=project)
        assert done.returncode == 0, done.stdout + done.stderr
