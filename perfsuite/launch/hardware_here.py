"""Which hardware of the catalog this machine is, what it lacks for a strategy, and its record."""

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.cell_id import CPU, HardwareName
from perfsuite.catalog.definitions import Device
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy
from perfsuite.errors import UsageError
from perfsuite.records.measurement import KERNELS, Machine, releases
from perfsuite.system import machine
from perfsuite.system.machine import Gpu
from perfsuite.system.networks import networks

MEMORY_TOLERANCE = 0.1  # of a device's memory: ECC takes up to 6 % of it away
RANKS_PER_CORE = 4  # with more ranks per core, the numbers mean nothing
SHOWN_OF_UUID = 12  # characters: "GPU-8932f937"


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


def most_ranks() -> int:
    """How many ranks of a CPU this machine's cores allow."""
    return machine.cores() * RANKS_PER_CORE


def why_absent(hardware: Hardware, catalog: Catalog) -> str:
    """The reason why this machine is not that hardware; empty if it is."""
    if sys.platform != "linux":  # baselines can still be read there
        return f"{hardware.name} is not here: ranks need Linux."
    if hardware.nodes > 1:
        return f"{hardware.name} has {hardware.nodes} nodes: SLURM or torchrun must give them (perf_launcher)."
    if hardware.device is None:
        if machine.emulates():  # the stand-ins are in these processes too, and would be measured
            return "a CPU is not measured under perfsuite emulate: run cells of GPUs, e.g. with --perf-hardware=gpus"
        most, cores = most_ranks(), machine.cores()
        return "" if hardware.ranks <= most else f"{hardware.name}: this machine's {cores} cores allow {most} ranks."
    gpus = machine.gpus()
    if sum(device_of(gpu, catalog) == hardware.device for gpu in gpus) >= hardware.ranks:
        return ""
    present = ", ".join(gpu.name for gpu in gpus) or "no GPU"
    more = f" Start it with perfsuite emulate --gpus {hardware.device.name}:{hardware.ranks}."
    return f"{hardware.name} is not here: this machine has {present}.{more if machine.emulates() else ''}"


def require_here(hardware: Iterable[Hardware], catalog: Catalog) -> None:
    """Raise UsageError for the first that this machine is not."""
    if absent := next(filter(None, (why_absent(one, catalog) for one in hardware)), ""):
        raise UsageError(absent)


def missing_packages(strategy: Strategy) -> list[str]:
    """The strategy's packages that are not installed here."""
    return [name for name in strategy.packages if not machine.version_of(name)]


def why_missing(strategy: Strategy) -> str:
    """The missing packages and how to install them; empty if all are installed."""
    missing = missing_packages(strategy)
    names = " and ".join(missing)
    return f"{strategy.name} needs {names}, not installed here: pip install {' '.join(missing)}" if missing else ""


def other_versions(recorded: Mapping[str, str]) -> list[str]:
    """``torch 2.12 -> 2.13`` for packages recorded with another version than the installed one, by its metadata.

    torch's choice of kernels depends on the machine, and only a rank can read it.
    """
    here = {name: machine.version_of(name) or "none" for name in recorded if name != KERNELS}
    here |= {"python": platform.python_version()} if "python" in here else {}
    before, now = releases(recorded), releases(here)
    return [f"{name} {recorded[name]} -> {here[name]}" for name in here if before[name] != now[name]]


def local_hardware(catalog: Catalog) -> list[str]:
    """This machine's GPUs as hardware names: for every known kind one rank, and all of them if there are more."""
    counts = Counter(device.name for gpu in machine.gpus() if (device := device_of(gpu, catalog)))
    return [str(HardwareName(name, ranks)) for name, count in counts.items() for ranks in sorted({1, count})]


def largest_here(names: Sequence[str]) -> HardwareName:
    """Of these: all GPUs of the first kind, since each rank must see its own before it is known how many there are. One
    rank on the CPU if there are none.
    """
    here = [HardwareName.parse(name) for name in names] or [HardwareName(CPU, 1)]
    return max((one for one in here if one.kind == here[0].kind), key=lambda one: one.ranks or 0)


def device_indices(hardware: Hardware, catalog: Catalog) -> list[int]:
    """The local indices of the accelerators of that kind; empty for a CPU."""
    if hardware.device is None:
        return []
    return [gpu.index for gpu in machine.gpus() if device_of(gpu, catalog) == hardware.device]


def describe(hardware: Hardware, catalog: Catalog, devices: Sequence[int] = ()) -> Machine:
    """The machine as a record, with the leased ``devices`` or, before a lease, the GPUs that a lease takes first.
    ``identity`` distinguishes two machines of one kind: by the GPUs and their connections, which a fresh container
    finds again, or else by the user's name for it, or by its host name and a random number in its cache folder.
    /etc/machine-id is the same on all clones of an image.
    """
    who, name = [machine.cpu_name(), str(machine.cores())], os.environ.get(machine.MACHINE, "").strip()
    wanted = list(devices) or device_indices(hardware, catalog)[: hardware.ranks]
    if hardware.device and not wanted:  # ranks that are started all the same see every GPU, which may be emulated
        wanted = [gpu.index for gpu in machine.gpus()][: hardware.ranks]
    mine = [gpu for gpu in machine.gpus() if gpu.index in wanted]
    if mine:
        gpu, links = mine[-1], machine.links_between(wanted)
        who += [gpu.uuid for gpu in mine] + [f"{ranks} {link}" for ranks, link in links.items()]
        return Machine(
            identity=machine.digest(who),
            name=name,
            device=gpu.name,
            cores=machine.cores(),
            memory_bytes=gpu.memory_bytes,
            driver=gpu.driver,
            gpus=[gpu.uuid[:SHOWN_OF_UUID] for gpu in mine],
            links=links,
            networks=networks(),
        )
    import psutil

    memory, number = psutil.virtual_memory().total, machine.own_number()
    known_by = [name] if name else [number, platform.node()] if number else []  # nodes may share a home folder
    identity = machine.digest([*who, *known_by]) if known_by else ""
    return Machine(
        identity=identity,
        name=name,
        device=machine.cpu_name(),
        cores=machine.cores(),
        memory_bytes=memory,
        networks=networks(),
    )
