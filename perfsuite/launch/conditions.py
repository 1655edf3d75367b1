"""What the machine did while a cell ran: load, stolen time, clocks, reasons of throttling. Shown, never held."""

import os
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

_GPU_FIELDS = {
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "temperature.gpu": "temperature_celsius",
    "clocks_event_reasons.active": "throttle_reasons",  # a bit mask: nvidia-smi --help-query-gpu
}


@dataclass(frozen=True)
class Moment:
    """The kernel's counters of CPU time at one moment, in ticks; None where it has none."""

    ticks: tuple[int, ...] | None

    @classmethod
    def now(cls) -> "Moment":
        try:
            head = Path("/proc/stat").read_text().split("\n", 1)[0]
        except OSError:
            return cls(None)
        return cls(tuple(int(field) for field in head.split()[1:9]))


def conditions(begin: Moment, devices: list[int]) -> dict[str, float | str]:
    """The conditions from ``begin`` until now; of each leased GPU the first's, which all ranks wait for.

    ``stolen_share`` is the share of the machine's CPU time that the hypervisor gave to others (proc(5), steal),
    ``busy_share`` the share that anything here used, this cell included.
    """
    found: dict[str, float | str] = {"load_1min": round(os.getloadavg()[0], 2)}
    end = Moment.now()
    if begin.ticks and end.ticks:
        spent = [after - before for before, after in zip(begin.ticks, end.ticks, strict=True)]
        total, idle, stolen = sum(spent), spent[3] + spent[4], spent[7]
        if total > 0:
            found |= {"busy_share": round(1 - (idle + stolen) / total, 3), "stolen_share": round(stolen / total, 3)}
    clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if clocks:
        found["cpu_clock_mhz"] = round(statistics.fmean(map(float, clocks)))
    return found | (_gpu(devices[0]) if devices else {})


def _gpu(index: int) -> dict[str, float | str]:
    """What nvidia-smi tells of one GPU; nothing where it tells nothing."""
    command = shutil.which("nvidia-smi")
    if not command:
        return {}
    query = [command, f"--id={index}", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return {}
    values = [value.strip() for value in done.stdout.split(",")]
    if done.returncode or len(values) != len(_GPU_FIELDS):
        return {}
    return {
        name: float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else value
        for name, value in zip(_GPU_FIELDS.values(), values, strict=True)
    }
