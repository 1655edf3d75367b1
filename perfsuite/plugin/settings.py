"""The names of the plugin's fixture and settings, and how one is read. Plain pytest imports it with the plugin, so it
imports nothing slow.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfsuite.errors import UsageError

UPDATES = ("new", "regressed", "improved", "times", "all")
TRIALS = ("auto", "always", "never")
TRACES = ("never", "red", "all")
LAUNCHERS = ("auto", "local", "slurm", "torchrun")
FIXTURE = "perf_cell"
SCRIPT = "perf_script"  # the marker of a script's cell
KINDS = {kind.__name__: kind for kind in (str, int, float)}
_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
SETTINGS = tuple((name, KINDS[row.get("kind", "str")], row["help"]) for name, row in _ROWS)  # name, type, help


def setting(config: pytest.Config, name: str) -> Any:
    """The option if given, else the ini value, else None. Raises UsageError for an invalid ini value."""
    value = config.getoption(f"--perf-{name.replace('_', '-')}")
    if value is not None:
        return value
    text = config.getini(f"perf_{name}")
    if not text:
        return None
    kind = next(kind for known, kind, _ in SETTINGS if known == name)
    try:
        return kind(text)
    except ValueError as error:
        raise UsageError(f"{config.inipath}: perf_{name} is {text!r}, which is not a number.") from error
