"""The keys of a project: ``perf_kernels = native`` in pytest's ini."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perfsuite.errors import UnknownName
from perfsuite.settings.kernels import NATIVE, PORTABLE
from perfsuite.settings.setting import Setting, as_written, count, positive, share

PATIENCE = 2.5  # times longer may the start of a rank take than a step

BASELINES = Setting(
    name="baselines",
    help="Folder of the baselines.",
    default=Path("baselines"),
    parse=Path,
    metavar="FOLDER",
    kind="string",
)
CATALOG: Setting[list[Path]] = Setting(
    name="catalog",
    help="Folders with your own models, engines, ….",
    default=[],
    parse=lambda text: [Path(text)],
    metavar="FOLDER",
    shown="none",
    kind="paths",
)
TESTPATHS: Setting[list[str]] = Setting(
    name="testpaths",
    help="Paths that --perf collects instead of testpaths.",
    default=[],
    parse=str.split,
    kind="args",
)
KERNELS = Setting(
    name="kernels",
    help="Instruction sets of a CPU's kernels: portable (the same on every x86-64 machine) or native.",
    default=PORTABLE,
    parse=str,
    choices=(PORTABLE, NATIVE),
    kind="string",
)
TIME_TOLERANCE: Setting[float | None] = Setting(
    name="time_tolerance",
    help="Smallest relative slow-down that must be detected.",
    default=None,
    parse=positive,
    metavar="SHARE",
    shown="0.03 on CPUs, 0.02 elsewhere",
    kind="string",
)
LAUNCHES = Setting(
    name="launches",
    help="Launches of a new baseline; its exact metrics must repeat themselves.",
    default=3,
    parse=count(),
    metavar="N",
    kind="string",
)
WARMUP = Setting(
    name="warmup",
    help="Warm-up steps before the timed steps.",
    default=5,
    parse=count(0),
    metavar="N",
    kind="string",
)
TIMEOUT = Setting(
    name="timeout",
    help=f"Seconds without progress that a rank may take; {PATIENCE} times as many before its first step.",
    default=120.0,
    parse=positive,
    metavar="SECONDS",
    shown="120",
    kind="string",
)
BUSY_SHARE = Setting(
    name="busy_share",
    help="Share of the machine that others may use while a time is recorded.",
    default=0.25,  # of the machine's processor time: if others take more while a cell runs, its times are spoiled
    parse=share,
    metavar="SHARE",
    kind="string",
)
LAUNCHER = Setting(
    name="launcher",
    help="What starts ranks: local, slurm, torchrun or auto: local, and the others for several nodes.",
    default="auto",
    parse=str,
    choices=("auto", "local", "slurm", "torchrun"),
    kind="string",
)
OPEN = Setting(
    name="open",
    help="Result of a cell whose time cannot be decided: pass or fail.",
    default="pass",
    parse=str,
    choices=("pass", "fail"),
    kind="string",
)
HISTORY: Setting[str | None] = Setting(
    name="history",
    help="Earlier reports, a file or a folder, for what cells cost and import.",
    default=None,
    parse=as_written,
    shown="the baselines",
    kind="string",
)

KEYS: tuple[Setting[Any], ...] = (
    BASELINES, CATALOG, TESTPATHS, KERNELS, TIME_TOLERANCE, LAUNCHES, WARMUP, TIMEOUT, BUSY_SHARE, LAUNCHER,
    OPEN, HISTORY,
)  # fmt: skip


def check_keys(names: Iterable[str], file: object) -> None:
    """Raise UnknownName for a name in pytest's ini that nearly is a key, of which pytest only warns."""
    import difflib

    known = [key.key for key in KEYS]
    for name in names:
        if name.startswith("perf") and name not in known and (near := difflib.get_close_matches(name, known, n=1)):
            raise UnknownName(f"key in {file}", name, known, "", near[0])
