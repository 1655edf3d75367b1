"""Host memory: the most resident bytes of the rank's process, including libraries."""

import contextlib
from pathlib import Path

from perfsuite.catalog.definitions import OF_STEPS, Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.units import BYTES


class Host(Meter):
    """Reads the kernel's own high-water mark, which begins at the fork."""

    processes = OF_STEPS
    watches = "counted"

    def watching(self) -> contextlib.AbstractContextManager[None]:
        self.peak = _high_water_mark()  # later memory is perfsuite's own: dispatch modes, the log's replay
        return contextlib.nullcontext()

    def readings(self) -> dict[str, Reading]:
        return {"host_peak_bytes": Reading(value=self.peak)}


def _high_water_mark() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM line.")


METER = Host
METRICS = (Metric("host_peak_bytes", "host RSS", BYTES),)
