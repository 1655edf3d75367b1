"""Which devices are emulated: ``h100:2`` is two H100. Their facts are the catalog's."""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.catalog.definitions import Device
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.predict.overhead import CONTEXT
from perfsuite.features.predict.time.constants import MULTIPROCESSORS
from perfsuite.system.machine import EMULATED
from perfsuite.system.units import show_bytes

MOST_DEVICES = 64
KIB, MIB = 2**10, 2**20


class Multiprocessor(msgspec.Struct, frozen=True):
    """KiB of shared memory, and threads."""

    shared: int
    shared_of_block: int
    threads: int


class Facts(msgspec.Struct, frozen=True):
    """The content of ``devices.toml``: multiprocessors by compute capability, and MiB of L2 cache by device."""

    multiprocessors: dict[float, Multiprocessor]
    l2: dict[str, int]


FACTS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Facts)


@dataclass(frozen=True)
class Gpus:
    """``count`` devices of one kind, each with ``memory_bytes`` as CUDA reports them."""

    device: Device
    count: int
    memory_bytes: int

    @property
    def name(self) -> str:
        """The driver's name for the device. The catalog finds it by the fragments of the real one."""
        return f"{EMULATED}{' '.join(self.device.matches).upper()}"

    def __str__(self) -> str:
        return f"{self.count} emulated {self.device.name} of {show_bytes(self.memory_bytes)}"

    def settings(self) -> dict[str, str | int]:
        """What the stand-ins read (sources/core/device.cpp)."""
        capability = self.device.compute_capability or 0.0
        multiprocessor = FACTS.multiprocessors[capability]
        return {
            "name": self.name,
            "count": self.count,
            "card_bytes": self.device.memory_bytes,
            "memory_bytes": self.memory_bytes,
            "context_bytes": CONTEXT,
            "major": int(capability),
            "minor": round(capability * 10) % 10,
            "multiprocessors": MULTIPROCESSORS[self.device.name],
            "threads_per_multiprocessor": multiprocessor.threads,
            "shared_per_multiprocessor": multiprocessor.shared * KIB,
            "shared_per_block": multiprocessor.shared_of_block * KIB,
            "l2_bytes": FACTS.l2[self.device.name] * MIB,
        }


def parse_gpus(text: str, memory_bytes: int | None, catalog: Catalog) -> Gpus:
    """The devices of ``h100:2``; ``h100`` is one. Without ``memory_bytes`` they have all that CUDA leaves of theirs.

    Raises UsageError for a malformed text, an unknown or unsuitable device, and too much or too little memory.
    """
    match = re.fullmatch(r"(\w+)(?::(\d+))?", text)
    count = int(match[2] or 1) if match else 0
    if not match or not 1 <= count <= MOST_DEVICES:
        raise UsageError(
            f"--gpus {text!r} is not a device and a count of 1 to {MOST_DEVICES}: write for example h100:2."
        )
    known = {name: device for name, device in catalog.all("device").items() if _why_not(device) == ""}
    device = catalog.all("device").get(match[1])
    if device is None:
        raise UnknownName("GPU", match[1], known, "Write for example --gpus h100:2.")
    if reason := _why_not(device):
        raise UsageError(f"{device.name} cannot be emulated: {reason}. Known: {', '.join(sorted(known))}.")
    most = device.usable_bytes
    memory_bytes = most if memory_bytes is None else memory_bytes
    if not CONTEXT < memory_bytes <= most:
        raise UsageError(
            f"--capacity must be above {show_bytes(CONTEXT)}, which CUDA's context takes, and at most "
            f"{show_bytes(most)}, which {device.name} has."
        )
    return Gpus(device, count, memory_bytes)


def _why_not(device: Device) -> str:
    """Why a device cannot be emulated; empty if it can."""
    if device.compute_capability is None:
        return "it is not a device of NVIDIA"
    known = device.name in MULTIPROCESSORS and device.name in FACTS.l2
    known = known and device.compute_capability in FACTS.multiprocessors
    return "" if known else "its multiprocessors and L2 cache are not known"
