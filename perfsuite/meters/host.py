"""Host memory: the most resident bytes of the rank's process, including libraries."""

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Any, NamedTuple

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import BYTES

SMALLEST = 32  # bytes of what Python's own allocator gives out for a number; a string has more
SHARED = ("/dev/zero", "/memfd:", "/SYSV", "/dev/shm/pym-", "/dev/shm/psm_")  # beginnings of the kernel's names
GUARD = 2**16  # bytes at most, below the stack of a thread


class Host(Meter):
    """Reads the kernel's own high-water mark, which begins at the fork."""

    processes = OF_STEPS
    watches = StepKind.COUNTED

    def watching(self) -> contextlib.AbstractContextManager[None]:
        self.peak = highest()  # later memory is perfsuite's own: dispatch modes, the log's replay
        return contextlib.nullcontext()

    def readings(self) -> dict[str, Reading]:
        return {"host_peak_bytes": Reading(value=self.peak)}


_before = 0  # the mark when it last began anew


def high_water_mark() -> int:
    """The most resident bytes of this process since its mark has begun."""
    return _status("VmHWM")


def highest() -> int:
    """The most resident bytes of this process so far."""
    return max(_before, high_water_mark())


def begin_high_water_mark() -> int | None:
    """Let it begin anew; returns the resident bytes now, or None if the kernel does not allow it (proc(5))."""
    global _before
    _before = highest()
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


class Mapped(NamedTuple):
    """Bytes of memory that this process has mapped itself: ``shared`` with children, and ``private`` at least."""

    shared: int = 0
    private: int = 0


def mapped() -> Mapped:
    """What was mapped by others than malloc: by ``mmap.mmap(-1, …)``, or by an allocator of a library. Tensors on their
    way between processes do not count, nor do stacks of threads.

    The kernel merges neighbours, so private bytes are all that are mapped without malloc's. Those that are not resident
    are left out, as of a stack whose guard page is gone.
    """
    total = shared = heap = 0
    import resource  # Windows has none, and the parent reads this file there too

    stack, before = resource.getrlimit(resource.RLIMIT_STACK)[0], (0, "", 0)
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
        begin, end = (int(address, 16) for address in places.replace("-", " ").split())
        size = end - begin
        if name == "[heap]":
            heap += size
        elif name.startswith(SHARED):
            shared += size
        elif not name and rights == "rw-p":
            behind_guard = before[:2] == (begin, "---p") and before[2] <= GUARD
            total += max(0, size - stack) if behind_guard and stack > 0 else size
        before = end, rights, size
    info = _mallinfo()
    if info is None:
        return Mapped(shared)
    arenas = max(0, int(info.arena) - heap)
    resident = _status("RssAnon") - int(info.arena + info.hblkhd)
    return Mapped(shared, max(0, min(total - arenas - int(info.hblkhd), resident)))


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
    info = _mallinfo()
    return int(info.uordblks + info.hblkhd) if info else 0


def given_out() -> int:
    """The bytes of malloc, and at least those of Python's own allocator."""
    return malloced() + SMALLEST * sys.getallocatedblocks()


def _mallinfo() -> Any:
    """malloc's counts, or None."""
    ask: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = _Mallinfo
    return ask()


METER = Host
METRICS = (Metric("host_peak_bytes", "host RSS", BYTES),)
