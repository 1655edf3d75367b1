"""The measurement of one cell: its machine, its launches and its readings."""

from collections.abc import Mapping
from typing import Literal

from perfsuite.records.failure import Failure
from perfsuite.records.installed import Installed
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading
from perfsuite.system.machine import EMULATED

OWN_CODE = "perfsuite's code"  # a flag: a hash of the code of perfsuite that the ranks run; older records lack it
COMMAND = "SCRIPT_COMMAND"  # a flag, as a variable that a trial can revert: what starts a script; older records lack it
KERNELS = "cpu kernels"  # listed with the versions of a measurement
STEP_TIME = "step_time_seconds"
BUILDS = ("", "cpu", "cu", "rocm", "hip", "xpu")  # what labels of torch's builds begin with
Outcome = Literal["fits", "oom", "unsupported", "failed"]


class Machine(Record, frozen=True, kw_only=True):
    """The machine that measured. The times of two runs can be compared only if ``identity`` is the same, and not empty.
    ``name`` is the user's for it; without one its times stay in its cache folder.

    ``gpus`` are the beginnings of the leased GPUs' UUIDs, as in CUDA_VISIBLE_DEVICES, rank by rank; ``links`` are the
    connections between two of them ({"0-1": "NV18"}), as named by nvidia-smi. ``nodes`` are the names of the nodes
    if a cluster gave them; both lists have the GPUs of all nodes, in that order. ``networks`` are the bytes per second
    of its network devices.
    """

    identity: str
    name: str = ""
    device: str
    cores: int
    memory_bytes: int
    driver: str = ""
    gpus: list[str] = []
    links: dict[str, str] = {}
    nodes: list[str] = []
    networks: dict[str, float] = {}

    @property
    def emulated(self) -> bool:
        """Whether `perfsuite emulate` stood in for the device: its memory is real, its times and numbers are not."""
        return self.device.startswith(EMULATED)


class Launch(Record, frozen=True, kw_only=True):
    """One start of a cell's ranks: its date, and the machine's state during it (load, clocks, throttling)."""

    date: str
    conditions: dict[str, float | str] = {}


class Measurement(Record, frozen=True, kw_only=True):
    """A cell measured on real hardware: by ``world_size`` ranks with so many ``devices`` each.

    ``warmup`` is the number of warm-up steps; None in older records. The samples of a time are those of all
    ``launches``, concatenated, equally many of each. ``flags`` are a RankSample's; old records have none.
    ``memory_curve`` is live memory over a step of the fullest rank, in the format of records/curves.py; empty
    before format 4 and without steps. ``imports`` are the repository's files that the cell depends on, by folder,
    with the beginnings of their git hashes (run/imports.py): {"models": "net.py:1f0c93ab loss.py:77de0a41"}.
    ``installed`` is empty in older records. ``asked`` are the variables that the user's own code asked for, with
    digests of their values, empty for one that was not set; older records have none. ``uncounted`` are metrics that
    could not be counted, with the reasons;
    older records name none. ``unrepeated`` are metrics of a script that should repeat themselves and do not, with the
    value of the launch that is farthest from the first. ``times_only``: a launch that counted nothing.
    """

    cell: str
    outcome: Outcome
    world_size: int
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
    asked: dict[str, str] = {}
    installed: Installed = Installed()
    machine: Machine
    engine: dict[str, str | int] = {}
    phases_seconds: dict[str, float] = {}
    wall_seconds: float
    capacity_bytes: int | None = None
    failure: Failure | None = None
    launches: list[Launch] = []
    warmup: int | None = None
    imports: dict[str, str] = {}
    memory_curve: dict[str, str] = {}
    uncounted: dict[str, str] = {}
    unrepeated: dict[str, int | float] = {}
    times_only: bool = False
    devices: int = 1

    @property
    def steps(self) -> int:
        """The timed steps of each launch; 0 for a cell without any."""
        parts = self.by_launch(STEP_TIME)
        return len(parts[0]) if parts else 0

    def by_launch(self, metric: str) -> list[list[float]]:
        """A timed metric's samples, launch by launch; empty if it was not measured."""
        samples: list[float] = self.readings[metric].samples if metric in self.readings else []  # type: ignore[assignment]
        size = len(samples) // (len(self.launches) or 1)
        parts = [samples[at : at + size] for at in range(0, len(samples), size)] if size else []
        return parts if all(samples) else [[one for one in part if one is not None] for part in parts]


def releases(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions that make two environments differ, without Python's patch release and the builds of releases: those
    differ between machines and cannot be reverted here.
    """
    return {
        name: ".".join(version.split(".")[:2]) if name == "python" else release_of(version)
        for name, version in versions.items()
    }


def release_of(version: str) -> str:
    """The version without the label of a build for a kind of device: ``2.13.0+cpu`` is ``2.13.0``. With any other label
    (``5.23.0+ours``) somebody has changed the release.
    """
    release, _, label = version.partition("+")
    return release if label.partition(".")[0].rstrip("0123456789") in BUILDS else version
