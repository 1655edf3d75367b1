"""Without torch in its own environment, perfsuite trains with the Python that the user's shell would start."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from perfsuite.environments.training_python import require_torch, training_python, variables_of
from perfsuite.errors import UsageError
from perfsuite.system.paths import is_left_out


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment of each kind, all of them there, none active, in a project without torch beside perfsuite."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = {}
    for name in ("active", "project/.venv", "conda", "path"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
        found[name] = str(python)
    (tmp_path / "project" / "deep").mkdir()
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"):
        monkeypatch.delenv(name, raising=False)
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([own, str(tmp_path / "path" / "bin")]))
    return found


def test_with_torch_it_is_this_one(tmp_path: Path) -> None:
    """As in an environment that has both."""
    assert training_python(tmp_path) == sys.executable


def test_the_nearest_is_taken(places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active one, the project's, then that on PATH, where perfsuite's own folder does not count."""
    assert training_python(tmp_path / "nowhere") == places["path"]
    assert training_python(tmp_path / "project" / "deep") == places["project/.venv"]
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert training_python(tmp_path / "project") == places["active"]


@pytest.mark.parametrize("last", ["active", "conda"])
def test_of_two_active_ones_the_shell_takes_the_last(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """As `conda activate` in a virtual environment, or a pixi shell of another environment than the default one. Each
    begins PATH with its own programs, and leaves the other's variable.
    """
    for variable, name in (("VIRTUAL_ENV", "active"), ("CONDA_PREFIX", "conda")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "train")
    others = [name for name in ("active", "conda") if name != last]
    programs = [str(tmp_path / name / "bin") for name in (last, *others)]
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), *programs]))

    assert training_python(tmp_path / "project") == places[last]


def test_conda_s_base_gives_way_to_the_project_s(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many shells activate it in every folder, so it says nothing about this one."""
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    assert training_python(tmp_path / "project") == places["project/.venv"]
    assert training_python(tmp_path / "nowhere") == places["conda"]
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "train")
    assert training_python(tmp_path / "project") == places["conda"]


def test_perfsuite_s_own_environment_is_none(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Active or not: it has no torch. With nothing else there, its Python says so."""
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert training_python(tmp_path / "nowhere") == places["path"]
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert training_python(tmp_path / "nowhere") == sys.executable


@pytest.mark.parametrize("name", ["venv", ".pixi/envs/default", ".conda"])
def test_a_project_s_environment_has_several_names(places: dict[str, str], tmp_path: Path, name: str) -> None:
    """Those of venv, and of pixi and VS Code, whose environments are conda's: no copy of the project has them."""
    python = tmp_path / "other" / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    (tmp_path / "other" / name / "conda-meta").mkdir()

    assert training_python(tmp_path / "other") == str(python)
    assert is_left_out(tmp_path / "other" / name)


def test_without_torch_every_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is there, for the Python that would train."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", str(python.parent))
    with pytest.raises(UsageError) as refused:
        require_torch(str(python), tmp_path)

    assert str(refused.value).startswith(f"{python} has no torch. Activate the environment that trains, or install")
    assert str(refused.value).endswith(f"and above: none; conda's base: none; PATH: {python}.")


def test_tools_take_the_same_virtual_environment(tmp_path: Path) -> None:
    """uv and poetry, by their own variables; an environment of conda is none for them."""
    python = tmp_path / "bin" / "python"
    assert variables_of(str(python)) == {}
    (tmp_path / "pyvenv.cfg").touch()
    assert variables_of(str(python)) == {
        "VIRTUAL_ENV": str(tmp_path), "UV_PROJECT_ENVIRONMENT": str(tmp_path), "UV_NO_SYNC": "1"
    }  # fmt: skip
