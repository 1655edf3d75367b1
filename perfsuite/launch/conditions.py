"""The state of the machine while a cell ran: load, stolen time, clocks, throttling. Shown, never compared."""

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PERIOD_SECONDS = 2.0  # between two samples of the clocks; nvidia-smi takes a tenth of a second
_GPU_FIELDS = ("clocks.sm", "temperature.gpu", "clocks_event_reasons.active")
_SET_FIELDS = ("clocks.applications.graphics", "clocks.default_applications.graphics")
SET_BY_USER = 0x2  # of the reasons' mask: nvmlClocksEventReasonApplicationsClocksSetting, for -ac and -lgc alike


class Conditions:
    """Begins when it is created; call ``look()`` while the ranks run, as often as you like."""

    def __init__(self, devices: list[int]) -> None:
        self._devices = devices
        self._ticks = _ticks()
        self._looked = -PERIOD_SECONDS
        self._cpu_mhz: list[float] = []
        self._gpu: list[tuple[float, float, int]] = []  # clock in MHz, temperature in °C, mask of reasons
        self._applications: list[str] = []  # the clock that is set, and the one that the driver would set

    def look(self) -> None:
        """Sample the clocks; for leased GPUs those of the first, for which all ranks wait."""
        now = time.monotonic()
        if now - self._looked < PERIOD_SECONDS:
            return
        self._looked = now
        clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if clocks:
            self._cpu_mhz.append(statistics.fmean(map(float, clocks)))
        if self._devices:
            if not self._gpu:
                self._applications = _asked(self._devices[0], _SET_FIELDS)
            self._gpu += _gpu(self._devices[0])

    def told(self) -> dict[str, float | str]:
        """Until now. ``stolen_share`` is the share of the machine's CPU time that the hypervisor gave to others
        (proc(5), steal), ``busy_share`` the share used by all processes, including this cell. Of the clocks it has the
        lowest, and of the throttling reasons all, as nvidia-smi's bit mask (nvidia-smi --help-query-gpu). ``clocks``
        are "locked" if somebody has set other application clocks than the driver's, or if a set clock limited the GPU.
        """
        found: dict[str, float | str] = {"load_1min": round(os.getloadavg()[0], 2)}
        ticks = _ticks()
        spent = [after - before for before, after in zip(self._ticks, ticks, strict=False)]
        if sum(spent) > 0:
            idle, stolen = spent[3] + spent[4], spent[7]
            found["busy_share"] = round(1 - (idle + stolen) / sum(spent), 3)
            found["stolen_share"] = round(stolen / sum(spent), 3)
        if self._cpu_mhz:
            found["cpu_clock_mhz"] = round(min(self._cpu_mhz))
        if self._gpu:
            clocks, temperatures, masks = zip(*self._gpu, strict=True)
            reasons = 0
            for mask in masks:
                reasons |= mask
            found |= {"sm_clock_mhz": min(clocks), "temperature_celsius": max(temperatures)}
            found["throttle_reasons"] = f"{reasons:#x}"
            changed = len(set(filter(str.isdigit, self._applications))) > 1
            locked = reasons & SET_BY_USER or changed
            found["clocks"] = "locked" if locked else "not locked"
        return found


def _ticks() -> list[int]:
    """The kernel's counters of CPU time; empty where it has none."""
    try:
        head = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return []
    return [int(field) for field in head.split()[1:9]]


def _gpu(index: int) -> list[tuple[float, float, int]]:
    """One sample of a GPU; none if nvidia-smi gives none."""
    try:
        clock, temperature, mask = _asked(index, _GPU_FIELDS)
        return [(float(clock), float(temperature), int(mask, 16))]
    except ValueError:  # "[N/A]", or no such GPU
        return []


def _asked(index: int, fields: Sequence[str]) -> list[str]:
    """nvidia-smi's answer for a GPU, field by field; empty if it gives none."""
    command = shutil.which("nvidia-smi")
    if not command:
        return []
    query = [command, f"--id={index}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return []
    return [value.strip() for value in done.stdout.split(",")]
