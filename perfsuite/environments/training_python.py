"""The Python that trains, where perfsuite has an environment of its own without torch, as `uvx` and `pipx` make one.

It is the one that the shell of the user would start.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def training_python(folder: Path) -> str:
    """This process' Python if it has torch. Else that of the active virtual environment, of the ``.venv`` of the folder
    or of one above it, of conda, or the first on PATH, whichever is there first and is not this one.
    """
    if importlib.util.find_spec("torch"):
        return sys.executable
    here = folder.resolve()
    own = [str(above / ".venv") for above in (here, *here.parents)]
    for place in filter(None, [os.environ.get("VIRTUAL_ENV"), *own, os.environ.get("CONDA_PREFIX")]):
        python = Path(place) / "bin" / "python"
        if python.is_file() and Path(place).resolve() != Path(sys.prefix).resolve():
            return str(python)
    ours = str(Path(sys.executable).parent)
    path = os.pathsep.join(one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if one != ours)
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or sys.executable
