"""The measurement of one cell: its machine, its launches and its readings."""

from collections.abc import Mapping
from typing import Literal

from perfsuite.wire.failure import Failure
from perfsuite.wire.record import Record
from perfsuite.wire.sample import Reading

Outcome = Literal["fits", "oom", "unsupported", "failed"]


class Machine(Record, frozen=True, kw_only=True):
    """The machine that measured. Two runs compare in time only where ``identity`` is the same.

    ``gpus`` are the beginnings of the leased GPUs' UUIDs, as CUDA_VISIBLE_DEVICES takes them, rank by rank; ``links``
    what connects those of two ranks ({"0-1": "NV18"}), in nvidia-smi's words.
    """

    identity: str
    device: str
    cores: int
    memory_bytes: int
    driver: str = ""
    gpus: list[str] = []
    links: dict[str, str] = {}


class Launch(Record, frozen=True, kw_only=True):
    """One start of a cell's ranks: when, and what the machine did meanwhile (load, clocks, reasons of throttling)."""

    date: str
    conditions: dict[str, float | str] = {}


class Measurement(Record, frozen=True, kw_only=True):
    """A cell measured on real hardware.

    The samples of a time are those of all ``launches``, one launch behind the other, equally many of each. ``flags``
    are a RankSample's; records from before there were any have none.
    """

    cell: str
    outcome: Outcome
    world_size: int
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
    machine: Machine
    engine: dict[str, str | int] = {}
    phases_seconds: dict[str, float] = {}
    wall_seconds: float
    capacity_bytes: int | None = None
    failure: Failure | None = None
    launches: list[Launch] = []

    def by_launch(self, metric: str) -> list[list[float]]:
        """A timed metric's samples, launch by launch; empty where it is not measured."""
        samples: list[float] = self.readings[metric].samples if metric in self.readings else []  # type: ignore[assignment]
        size = len(samples) // (len(self.launches) or 1)
        parts = [samples[at : at + size] for at in range(0, len(samples), size)] if size else []
        return parts if all(samples) else [[one for one in part if one is not None] for part in parts]


def releases(versions: Mapping[str, str]) -> dict[str, str]:
    """What makes two environments differ: neither Python's patch release nor the build of a release, ``2.13.0+cpu``,
    which are another machine's and cannot be taken back on this one.
    """
    return {
        name: ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]
        for name, version in versions.items()
    }
