"""The machine at hand, without importing torch: its CPU, its accelerators, its driver."""

import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import os
import platform
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.definitions import Device
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy
from perfsuite.errors import UsageError
from perfsuite.launch.networks import networks
from perfsuite.paths import cache_folder
from perfsuite.records.measurement import EMULATED, KERNELS, Machine, releases

MEMORY_TOLERANCE = 0.1  # of a device's memory: ECC takes up to 6 % of it away
MACHINE = "PERFSUITE_MACHINE"  # a variable: the name that the user gives this machine
RANKS_PER_CORE = 4  # with more ranks per core, the numbers mean nothing
SHOWN_OF_UUID = 12  # characters: "GPU-8932f937"
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


def device_of(gpu: Gpu, catalog: Catalog) -> Device | None:
    """The catalog's device for a GPU: every fragment of its name matches and its memory is the nearest."""
    name = gpu.name.lower()
    fitting = [
        device
        for device in catalog.all("device").values()
        if all(part in name for part in device.matches)
        and not any(part in name for part in device.excludes)
        and abs(device.memory_bytes - gpu.memory_bytes) < MEMORY_TOLERANCE * device.memory_bytes
    ]
    return min(
        fitting,
        key=lambda device: (abs(device.memory_bytes - gpu.memory_bytes), -len("".join(device.matches))),
        default=None,
    )


def why_absent(hardware: Hardware, catalog: Catalog) -> str:
    """The reason why this machine is not that hardware; empty if it is."""
    if sys.platform != "linux":  # baselines can still be read there
        return f"{hardware.name} is not here: ranks need Linux."
    if hardware.nodes > 1:
        return f"{hardware.name} has {hardware.nodes} nodes: SLURM or torchrun must give them (perf_launcher)."
    if hardware.device is None:
        if emulates():  # the stand-ins are in these processes too, and would be measured
            return "a CPU is not measured under perfsuite emulate: run cells of GPUs, e.g. with --perf-hardware=gpus"
        most = cores() * RANKS_PER_CORE
        return "" if hardware.ranks <= most else f"{hardware.name}: this machine's {cores()} cores allow {most} ranks."
    here = [device_of(gpu, catalog) for gpu in gpus()]
    count = sum(device == hardware.device for device in here)
    if count >= hardware.ranks:
        return ""
    present = ", ".join(gpu.name for gpu in gpus()) or "no GPU"
    more = f" Start it with perfsuite emulate --gpus {hardware.device.name}:{hardware.ranks}." if emulates() else ""
    return f"{hardware.name} is not here: this machine has {present}.{more}"


def require_here(hardware: Iterable[Hardware], catalog: Catalog) -> None:
    """Raise UsageError for the first that this machine is not."""
    if absent := next(filter(None, (why_absent(one, catalog) for one in hardware)), ""):
        raise UsageError(absent)


def missing_packages(strategy: Strategy) -> list[str]:
    """The strategy's packages that are not installed here."""
    return [name for name in strategy.packages if not version_of(name)]


def why_missing(strategy: Strategy) -> str:
    """The missing packages and how to install them; empty if all are installed."""
    missing = missing_packages(strategy)
    names = " and ".join(missing)
    return f"{strategy.name} needs {names}, not installed here: pip install {' '.join(missing)}" if missing else ""


def other_versions(recorded: Mapping[str, str]) -> list[str]:
    """``torch 2.12 -> 2.13`` for packages recorded with another version than the installed one, by its metadata.

    torch's choice of kernels depends on the machine, and only a rank can read it.
    """
    here = {name: version_of(name) or "none" for name in recorded if name != KERNELS}
    here |= {"python": platform.python_version()} if "python" in here else {}
    before, now = releases(recorded), releases(here)
    return [f"{name} {recorded[name]} -> {here[name]}" for name in here if before[name] != now[name]]


def version_of(package: str) -> str:
    """The installed version, by its metadata; empty if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def local_hardware(catalog: Catalog) -> list[str]:
    """This machine's GPUs as hardware names: for every known kind one rank, and all of them if there are more."""
    counts = Counter(device.name for gpu in gpus() if (device := device_of(gpu, catalog)))
    return [str(HardwareName(name, ranks)) for name, count in counts.items() for ranks in sorted({1, count})]


def device_indices(hardware: Hardware, catalog: Catalog) -> list[int]:
    """The local indices of the accelerators of that kind; empty for a CPU."""
    if hardware.device is None:
        return []
    return [gpu.index for gpu in gpus() if device_of(gpu, catalog) == hardware.device]


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


def describe(hardware: Hardware, catalog: Catalog, devices: Sequence[int] = ()) -> Machine:
    """The machine as a record, with the leased ``devices`` or, before a lease, the GPUs that a lease takes first.
    ``identity`` distinguishes two machines of one kind: by the GPUs and their connections, which a fresh container
    finds again, or else by the user's name for it, or by its host name and a random number in its cache folder.
    /etc/machine-id is the same on all clones of an image.
    """
    who, name = [cpu_name(), str(cores())], os.environ.get(MACHINE, "").strip()
    wanted = list(devices) or device_indices(hardware, catalog)[: hardware.ranks]
    if hardware.device and not wanted:  # ranks that are started all the same see every GPU, which may be emulated
        wanted = [gpu.index for gpu in gpus()][: hardware.ranks]
    mine = [gpu for gpu in gpus() if gpu.index in wanted]
    if mine:
        gpu, links = mine[-1], links_between(wanted)
        who += [gpu.uuid for gpu in mine] + [f"{ranks} {link}" for ranks, link in links.items()]
        return Machine(
            identity=_digest(who),
            name=name,
            device=gpu.name,
            cores=cores(),
            memory_bytes=gpu.memory_bytes,
            driver=gpu.driver,
            gpus=[gpu.uuid[:SHOWN_OF_UUID] for gpu in mine],
            links=links,
            networks=networks(),
        )
    import psutil

    memory, number = psutil.virtual_memory().total, own_number()
    known_by = [name] if name else [number, platform.node()] if number else []  # nodes may share a home folder
    identity = _digest([*who, *known_by]) if known_by else ""
    return Machine(
        identity=identity, name=name, device=cpu_name(), cores=cores(), memory_bytes=memory, networks=networks()
    )


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


def _digest(facts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
