"""The Python that trains, where perfsuite has an environment of its own without torch, as `uvx` and `pipx` make one.

It is the one that the shell of the user would start.
"""

import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from perfsuite.catalog.scripts import STARTERS
from perfsuite.environments.bounded import run
from perfsuite.errors import UsageError

PROJECTS = (".venv", "venv", ".pixi/envs/default", ".conda")  # the environment of a project, in its folder
ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
BASES = ("base", "root")  # CONDA_DEFAULT_ENV of conda's own environment, which many shells activate in every folder
TRIES = 4  # words of a tool's command that are asked for: each takes a second
WHICH = "import sys; print(sys.executable)"
HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def training_python(folder: Path, words: Sequence[str] = ()) -> str:
    """That of a tool with which the command begins. Else this process' Python if it has torch, or the first of
    ``_places`` that is there.
    """
    if tuple(words[1:2]) == ("run",) and Path(words[0]).name != "uv" and (chosen := _asked(tuple(words), folder)):
        return chosen
    if importlib.util.find_spec("torch"):
        return sys.executable
    return next(filter(None, _places(folder).values()), sys.executable)


@functools.cache
def _asked(words: tuple[str, ...], folder: Path) -> str:
    """The Python of the environment that a tool such as ``conda run -n train`` chooses, if need be by the folder, which
    a copy is not. That of uv is in the folder. Empty if the tool does not say it.

    Only the tool knows which word is its option's and which one is the program. It refuses ``-n python``.
    """
    program = [number for number in range(2, len(words)) if not words[number].startswith("-")]
    for at in sorted(program, key=lambda number: words[number] not in STARTERS)[:TRIES]:
        done = run(["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *words[:at], "python", "-c", WHICH])
        said = done.stdout.split("\n")[-2:-1] if done.returncode == 0 else []
        if python := next((python for python in said if Path(python).is_file()), ""):
            return python
    return ""


def require_torch(python: str, folder: Path) -> None:
    """Raise UsageError, which says where was looked, if the Python that was found for a folder has no torch."""
    if python == sys.executable and importlib.util.find_spec("torch"):
        return
    if run([python, "-c", HAS_TORCH]).returncode:
        looked = "; ".join(f"{place}: {found or 'none'}" for place, found in _places(folder).items())
        raise UsageError(
            f"{python} has no torch. Activate the environment that trains, or install torch there. Looked at {looked}."
        )


def _places(folder: Path) -> dict[str, str]:
    """The Python of each place, in the order in which a shell would take one; empty if there is none but this one."""
    here = folder.resolve()
    own = [above / name for above in (here, *here.parents) for name in PROJECTS]
    ours = Path(sys.executable).parent
    folders = [one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(one) != ours]
    path = os.pathsep.join(folders)
    active = {name: place for name in ACTIVE if (place := os.environ.get(name))}
    base = active.pop("CONDA_PREFIX", "") if os.environ.get("CONDA_DEFAULT_ENV") in BASES else ""

    def order(name: str) -> int:
        """Where its programs are on PATH: the shell takes those of the environment that was activated last."""
        programs = os.path.join(active.get(name, ""), "bin")
        return folders.index(programs) if programs in folders else len(folders)

    return {
        **{name: _python_of([Path(active[name])] if name in active else []) for name in sorted(ACTIVE, key=order)},
        f"{', '.join(PROJECTS)} of {here} and above": _python_of(own),
        "conda's base": _python_of([Path(base)] if base else []),
        "PATH": shutil.which("python", path=path) or shutil.which("python3", path=path) or "",
    }


def _python_of(environments: list[Path]) -> str:
    """That of the first environment that is there, and not perfsuite's own."""
    theirs = (place / "bin" / "python" for place in environments if place.resolve() != Path(sys.prefix).resolve())
    return next((str(python) for python in theirs if python.is_file()), "")


def variables_of(python: str) -> dict[str, str]:
    """Those with which `uv run` and `poetry run` use the virtual environment of this Python: in the copy of a project
    they would make another one. Empty if it has none.
    """
    environment = Path(python).parent.parent
    if not (environment / "pyvenv.cfg").is_file():
        return {}
    return {"VIRTUAL_ENV": str(environment), "UV_PROJECT_ENVIRONMENT": str(environment), "UV_NO_SYNC": "1"}
