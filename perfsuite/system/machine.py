"""The machine at hand, without importing torch: its CPU, its accelerators, its driver."""

import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import os
import platform
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.system.paths import cache_folder

EMULATED = "emulated "  # how the names of emulated GPUs begin
MACHINE = "PERFSUITE_MACHINE"  # a variable: the name that the user gives this machine
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # NVML's nearest common ancestors
_SWITCH = "switch"


@dataclass(frozen=True)
class Gpu:
    """One accelerator as the driver reports it."""

    index: int  # as nvidia-smi and, with CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA count
    name: str
    memory_bytes: int
    driver: str
    uuid: str


def ask_driver(question: Callable[[Any], Any], otherwise: Any) -> Any:
    """What NVIDIA's driver answers, through pynvml; ``otherwise`` if there is no driver or it has no answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return otherwise


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """The accelerators that this process may see; empty if there is no NVIDIA driver."""
    count = ask_driver(lambda nvml: nvml.nvmlDeviceGetCount(), 0)
    devices = (ask_driver(functools.partial(_gpu, index), None) for index in range(count))
    return tuple(gpu for gpu in devices if gpu and _visible(gpu.index, gpu.uuid))


def emulates() -> bool:
    """Whether this machine's GPUs are emulated."""
    return any(gpu.name.startswith(EMULATED) for gpu in gpus())


def refuse_emulated(what: str) -> None:
    """Raise UsageError if this machine's GPUs are emulated: ``what`` needs real times and numbers."""
    if emulates():
        raise UsageError(f"{what} needs real GPUs, and perfsuite emulate runs this command on emulated ones.")


def _gpu(index: int, nvml: Any) -> Gpu:
    """Raises an NVMLError for a chip that shares the host's memory and so has none of its own."""
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    memory, driver = nvml.nvmlDeviceGetMemoryInfo(device).total, nvml.nvmlSystemGetDriverVersion()
    return Gpu(index, nvml.nvmlDeviceGetName(device), memory, driver, nvml.nvmlDeviceGetUUID(device))


def links_between(devices: Sequence[int]) -> dict[str, str]:
    """The connections between these GPUs, by their places in the list: {"0-1": "NV18"}. NV# are NVLinks; PIX, PXB, PHB,
    NODE and SYS are ever longer paths over PCIe, as in nvidia-smi topo -m. Empty if the driver does not report them.
    """
    pairs = itertools.combinations(enumerate(devices), 2)
    return {f"{a}-{b}": link for (a, one), (b, other) in pairs if (link := _link(one, other))}


def islands(devices: Sequence[int]) -> list[list[int]]:
    """The GPUs, those that NVLinks connect together, in the order of their first ones."""
    groups: list[list[int]] = []
    for device in devices:
        joined = [group for group in groups if any(_link(other, device).startswith("NV") for other in group)]
        groups = [group for group in groups if group not in joined] + [[*(d for one in joined for d in one), device]]
    return sorted((sorted(group) for group in groups), key=lambda one: one[0])


@functools.cache
def _link(one: int, other: int) -> str:
    return str(ask_driver(functools.partial(_link_by, one, other), ""))


def _link_by(one: int, other: int, nvml: Any) -> str:
    """Direct NVLinks count, and those into a switch that both reach, as torch's NVLink detection counts them."""
    a, b = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (one, other))
    ours, theirs = _ends_of_links(a, nvml), _ends_of_links(b, nvml)
    if links := ours[nvml.nvmlDeviceGetPciInfo(b).busId] + min(ours[_SWITCH], theirs[_SWITCH]):
        return f"NV{links}"
    return _LEVELS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(a, b), "")


def _ends_of_links(device: Any, nvml: Any) -> Counter[Any]:
    """How many active NVLinks of a GPU end at a switch, and at which other device by its PCI bus."""
    ends: Counter[Any] = Counter()
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(nvml.NVMLError):  # no such link
            if nvml.nvmlDeviceGetNvLinkState(device, link) == nvml.NVML_FEATURE_ENABLED:
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link)
                is_switch = kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
                ends[_SWITCH if is_switch else nvml.nvmlDeviceGetNvLinkRemotePciInfo(device, link).busId] += 1
    return ends


def _visible(index: int, uuid: str) -> bool:
    """Whether the user's CUDA_VISIBLE_DEVICES shows this GPU. Like CUDA, it stops at the first invalid entry."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return True
    for entry in (part.strip() for part in shown.split(",")):
        if entry == str(index) or (entry.startswith("GPU-") and uuid.startswith(entry)):
            return True
        if not entry.isdigit() and not entry.startswith("GPU-"):
            return False
    return False


def version_of(package: str) -> str:
    """The installed version, by its metadata; empty if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@functools.cache
def cpu_name() -> str:
    """The CPU's model name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@functools.cache
def own_number() -> str:
    """A random number that this machine keeps in its cache folder from its first use on; empty if it cannot be kept."""
    try:
        path = cache_folder() / "machine"
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".machine.") as file:
            file.write(secrets.token_hex(16))
            file.flush()
            with contextlib.suppress(FileExistsError):  # the first of two that start at once has made it
                os.link(file.name, path)
        return path.read_text().strip()
    except (OSError, UsageError):
        return ""


def digest(facts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
