"""Lets a process of a measured command import what perfsuite needs, whatever its environment has.

Imports nothing but the standard library, of a Python that may be older than those that can be measured.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES

NEEDS = {  # the distribution of each module
    "filelock": "filelock",
    "msgspec": "msgspec",
    "packaging": "packaging",
    "platformdirs": "platformdirs",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
}
TOML = "tomli"  # where Python has no tomllib
OLDEST = (3, 10)  # Python 3.9 has had no security fixes since October 2025, and no new torch


def provide(variables: Mapping[str, str]) -> None:
    """Add a folder to sys.path that has them. ``variables`` are those with which the process began.

    Raises ImportError if they cannot be had here.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"perfsuite measures Python {oldest} and newer, and {sys.executable} is Python {version}.")
    toml = importlib.util.find_spec("tomllib") or importlib.util.find_spec(TOML)
    if toml and all(map(importlib.util.find_spec, NEEDS)):
        return
    command = [variables["PERFSUITE_PYTHON"], "-P", "-m", "perfsuite.launch.rank_packages"]
    clean = {name: value for name, value in variables.items() if name != "PERFSUITE_SCRIPT"}  # nothing attaches to it
    asked = [*command, sys.executable, EXTENSION_SUFFIXES[0], version]
    done = subprocess.run(asked, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImportError(done.stderr.strip())
    sys.path.append(done.stdout.strip())
