"""The state of the machine while a cell ran: load, stolen time, clocks, throttling. Shown, never compared."""

import contextlib
import functools
import operator
import os
import time
from typing import Any

from perfsuite.system.machine import ask_driver

PERIOD_SECONDS = 2.0  # between two samples of the clocks
SET_BY_USER = 0x2  # of the reasons' mask: nvmlClocksEventReasonApplicationsClocksSetting, for -ac and -lgc alike


class Conditions:
    """Begins when it is created; call ``look()`` while the ranks run, as often as you like."""

    def __init__(self, devices: list[int]) -> None:
        self._devices = devices
        self._begin = _cpu_seconds()
        self._own_begin = _own_seconds()
        self._looked = -PERIOD_SECONDS
        self._cpu_mhz: list[float] = []
        self._gpu: list[tuple[float, float, int]] = []  # clock in MHz, temperature in °C, mask of reasons
        self._applications: set[int] = set()  # the clock that is set, and the one that the driver would set

    def look(self) -> None:
        """Sample the clocks; for leased GPUs those of the first, for which all ranks wait."""
        now = time.monotonic()
        if now - self._looked < PERIOD_SECONDS:
            return
        self._looked = now
        import psutil

        if clock := psutil.cpu_freq():
            self._cpu_mhz.append(clock.current)
        if self._devices:
            if not self._gpu:
                self._applications = ask_driver(functools.partial(_applications, self._devices[0]), set())
            self._gpu += ask_driver(functools.partial(_gpu, self._devices[0]), [])

    def summary(self) -> dict[str, float | str]:
        """Until now. Shares are of the machine's CPU time: ``stolen_share`` is what the hypervisor gave to others
        (proc(5), steal), ``busy_share`` what all processes used, and ``others_share`` what those used that are not this
        run's. Of the clocks it has the lowest, and of the throttling reasons all, as NVML's bit mask
        (nvmlClocksEventReasons). ``clocks`` are "locked" if somebody has set other application clocks than the
        driver's, or if a set clock limited the GPU.
        """
        conditions: dict[str, float | str] = {"load_1min": round(os.getloadavg()[0], 2)}
        end = _cpu_seconds()
        spent = {kind: end[kind] - self._begin[kind] for kind in end}
        if (whole := sum(spent.values())) > 0:
            busy = 1 - (spent["idle"] + spent["iowait"] + spent["steal"]) / whole
            conditions["busy_share"] = round(busy, 3)
            others = whole * busy - (_own_seconds() - self._own_begin)
            conditions["others_share"] = round(max(0.0, others / whole), 3)
            conditions["stolen_share"] = round(spent["steal"] / whole, 3)
        if self._cpu_mhz:
            conditions["cpu_clock_mhz"] = round(min(self._cpu_mhz))
        if self._gpu:
            clocks, temperatures, masks = zip(*self._gpu, strict=True)
            reasons = functools.reduce(operator.or_, masks)
            conditions |= {"sm_clock_mhz": min(clocks), "temperature_celsius": max(temperatures)}
            conditions["throttle_reasons"] = f"{reasons:#x}"
            locked = reasons & SET_BY_USER or len(self._applications) > 1
            conditions["clocks"] = "locked" if locked else "not locked"
        return conditions


def _cpu_seconds() -> dict[str, float]:
    """CPU time of the whole machine since its start, by kind. A guest's is part of ``user`` and ``nice``."""
    import psutil  # where cells run: commands that only read work on systems without it

    return {kind: spent for kind, spent in psutil.cpu_times()._asdict().items() if not kind.startswith("guest")}


def _own_seconds() -> float:
    """CPU time of this process, of all that it started, and of those of them that have ended."""
    import psutil

    spent = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            spent += sum(process.cpu_times()[:4])  # user, system, and both of waited children
    return spent


def _gpu(index: int, nvml: Any) -> list[tuple[float, float, int]]:
    """One sample of a GPU."""
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
    temperature = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    return [(float(clock), float(temperature), nvml.nvmlDeviceGetCurrentClocksEventReasons(device))]


def _applications(index: int, nvml: Any) -> set[int]:
    """The application clock and the driver's own; one number if nobody has set another."""
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    asked = nvml.nvmlDeviceGetApplicationsClock, nvml.nvmlDeviceGetDefaultApplicationsClock
    return {ask(device, nvml.NVML_CLOCK_GRAPHICS) for ask in asked}
