"""Energy: the joules of the timed steps, per step, as the hardware's own counters tell; nothing where there are none.

A GPU has a counter of its own, which NVML reads (nvmlDeviceGetTotalEnergyConsumption, in millijoules since the driver
was loaded). A CPU's sockets have RAPL's, which Linux shows in microjoules to those that may read them
(https://docs.kernel.org/power/powercap/powercap.html): all that runs on the machine is in them, so they
count once for a node. Counters are updated every few milliseconds, so only the whole of the timed steps is read, with
what is between them.

The counter of an emulated GPU counts kernels (features/emulation/sources/nvml). Its energies are metrics of their own,
so that no table, series or baseline can mix them with measured ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind

RAPL = Path("/sys/class/powercap")
MILLI, MICRO = 1e-3, 1e-6
Counter = Callable[[], float]


class Energy(Meter):
    """Around the clock: what reads the counter is in no step's time."""

    processes = OF_STEPS
    order = Order.WHOLE
    watches = StepKind.TIMED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.steps = 0
        self.begin = self.joules = 0.0
        self.counter: Counter | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        if not self.steps:
            self.counter = counter_of(self.session)
            self.begin = self.counter() if self.counter else 0.0
        yield
        self.steps += 1
        if self.counter:
            self.session.synchronize()
            self.joules = self.counter() - self.begin

    def readings(self) -> dict[str, Reading]:
        if self.counter is None or not self.joules:
            return {}
        job = self.session.job
        counts = job.device == "cuda" or self.session.rank % job.node_size == 0
        name = "emulated_energy" if self.session.emulated else "energy"
        return {name: Reading(value=counts * self.joules / self.steps)}


def counter_of(session: Session) -> Counter | None:
    """What reads the joules of this rank's devices, or of its node's sockets; None if nothing does."""
    if session.job.device == "cuda":
        import torch

        uuids = [torch.cuda.get_device_properties(device).uuid for device in session.devices]
        counters = [counter for uuid in uuids if (counter := nvml_counter(f"GPU-{uuid}"))]
        return (lambda: sum(counter() for counter in counters)) if len(counters) == len(uuids) else None
    return rapl_counter()


def nvml_counter(uuid: str) -> Counter | None:
    """The joules of one GPU; None if its driver does not count them."""
    import pynvml

    try:
        pynvml.nvmlInit()
        device: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(device)
    except pynvml.NVMLError:
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(device) * MILLI


def rapl_counter(folder: Path = RAPL) -> Counter | None:
    """The joules of all sockets; None if no counter can be read. A counter that has wrapped around goes on."""
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    try:
        before = [_microjoules(zone) for zone in zones]
        ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in zones]
    except (OSError, ValueError):
        return None
    if not zones:
        return None
    total = 0

    def read() -> float:
        nonlocal total, before
        now = [_microjoules(zone) for zone in zones]
        total += sum((after - old) % size for after, old, size in zip(now, before, ranges, strict=True))
        before = now
        return total * MICRO

    return read


def _microjoules(zone: Path) -> int:
    return int((zone / "energy_uj").read_text())


def per_token(energy: str, readings: Mapping[str, Reading], world_size: int) -> float | None:
    """Joules of all ranks for one token of a step; None if one of the two is unknown."""
    if energy not in readings or "tokens" not in readings:
        return None
    return readings[energy].value / readings["tokens"].value


METER = Energy
METRICS = (
    Metric("energy", "energy/step", "J", fold="sum", optional=True, processes=OF_STEPS),
    Metric(
        "energy_per_token", "energy/token", "J", optional=True, processes=OF_STEPS, derive=partial(per_token, "energy")
    ),
    Metric("emulated_energy", "emulated energy/step", "J", fold="sum", hold="exact", optional=True, processes=OF_STEPS),
    Metric(
        "emulated_energy_per_token",
        "emulated energy/token",
        "J",
        hold="exact",
        optional=True,
        processes=OF_STEPS,
        derive=partial(per_token, "emulated_energy"),
    ),
)
