"""The Python that trains, where perfsuite has an environment of its own without torch, as `uvx` and `pipx` make one.

It is the one that the shell of the user would start.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")  # variables that name the active environment's folder


def training_python(folder: Path) -> str:
    """This process' Python if it has torch. Else that of the active virtual environment, of the ``.venv`` of the folder
    or of one above it, of conda, or the first on PATH, whichever is there first and is not this one.
    """
    if importlib.util.find_spec("torch"):
        return sys.executable
    virtual, conda = (os.environ.get(name, "") for name in ACTIVE)
    own = [str(above / ".venv") for above in (folder.resolve(), *folder.resolve().parents)]
    for place in filter(None, [virtual, *own, conda]):
        python = Path(place) / "bin" / "python"
        if python.is_file() and Path(place).resolve() != Path(sys.prefix).resolve():
            return str(python)
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join(one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if one != here)
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or sys.executable
