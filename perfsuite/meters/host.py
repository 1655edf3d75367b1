"""Host memory: the most resident bytes of the rank's process, including libraries."""

import contextlib
import ctypes
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.units import BYTES


class Host(Meter):
    """Reads the kernel's own high-water mark, which begins at the fork."""

    processes = OF_STEPS
    watches = "counted"

    def watching(self) -> contextlib.AbstractContextManager[None]:
        self.peak = high_water_mark()  # later memory is perfsuite's own: dispatch modes, the log's replay
        return contextlib.nullcontext()

    def readings(self) -> dict[str, Reading]:
        return {"host_peak_bytes": Reading(value=self.peak)}


def high_water_mark() -> int:
    """The most resident bytes of this process so far."""
    return _status("VmHWM")


def begin_high_water_mark() -> int | None:
    """Let it begin anew; returns the resident bytes now, or None if the kernel does not allow it (proc(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def resident_bytes() -> int:
    """The resident bytes of this process now."""
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name} line.")


class _Mallinfo(ctypes.Structure):
    """mallinfo(3): ``hblkhd`` bytes are mapped, ``uordblks`` are in use in the arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
            "keepcost",
        )
    )


def malloced() -> int:
    """The bytes that malloc has given out, in all threads; 0 without glibc 2.33 or newer, which can say so."""
    ask: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _Mallinfo
    info = ask()
    return int(info.uordblks + info.hblkhd)


METER = Host
METRICS = (Metric("host_peak_bytes", "host RSS", BYTES),)
