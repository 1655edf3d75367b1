"""The names of the plugin's fixture and settings, and how one is read. Plain pytest imports it with the plugin, so it
imports nothing slow.
"""

from typing import Any

import pytest

from perfsuite.errors import UsageError

UPDATES = ("new", "regressed", "improved", "times", "all")
TRIALS = ("auto", "always", "never")
TRACES = ("never", "red", "all")
LAUNCHERS = ("auto", "local", "slurm", "torchrun")
FIXTURE = "perf_cell"
SCRIPT = "perf_script"  # the marker of a script's cell
SETTINGS: tuple[tuple[str, type, str], ...] = (
    ("hardware", str, "Comma-separated hardware for the grid's cells, e.g. cpu_x2,h200_x1, instead of their own."),
    (
        "launcher",
        str,
        "What starts ranks: local, slurm, torchrun or auto (default): local, and the others for several nodes.",
    ),
    ("steps", int, "Timed steps of a cell (10)."),
    ("machine", str, "Name of this machine, e.g. a runner's label: its times are then part of the baselines."),
    ("busy_share", float, "Share of the machine that others may use while a time is recorded (0.25)."),
    ("launches", int, "Launches of a new baseline (3); its exact metrics must repeat themselves."),
    ("trial", str, "Run alarms and regressions in the baseline's environment too: auto (default), always or never."),
    ("open", str, "Result of a cell whose time cannot be decided: pass (default) or fail."),
    ("warmup", int, "Warm-up steps before the timed steps (5)."),
    ("long", int, "Steps of a long run after all others, of which all is counted that grows with every step (none)."),
    ("capacity", str, "Memory that each rank's tensors may occupy, e.g. 24GiB; exceeding it is an out-of-memory."),
    ("report", str, "File for the results, one line of JSON each."),
    ("html", str, "File for the results as a page for a browser."),
    (
        "trace",
        str,
        "Cells that are launched once more for a trace and memory snapshots: never (default), red or all.",
    ),
    ("trace_dir", str, "Folder for these files (perf-traces)."),
    ("kernels", str, "Instruction sets of a CPU's kernels: portable (the same on every x86-64 machine) or native."),
    ("time_tolerance", float, "Smallest relative slow-down that must be detected (0.03 on CPUs, 0.02 elsewhere)."),
    ("start_timeout", float, "Seconds without progress that a rank may take before its first step (300)."),
    ("step_timeout", float, "Seconds without progress that a rank may take after that (120)."),
    (
        "history",
        str,
        "Earlier reports, a file or a folder, for what cells cost and import; by default the baselines tell.",
    ),
)


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
