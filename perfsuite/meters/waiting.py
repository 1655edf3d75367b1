"""Exposed communication: how long a step waits idle for other ranks; the median of the timed steps.

On a CPU a rank computes in one thread, which sleeps only while a collective is not done. Its sleep is the step's time
minus computing time and minus waiting time for a core (the kernel's counters, read before and after the clock). On CUDA
the thread also waits for the device, so it is not measured there.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import EXPOSED
from perfsuite.units import SECONDS

_ACCOUNTS = Path("/proc/thread-self/schedstat")  # nanoseconds on a core, nanoseconds in the queue, turns


class Waiting(Meter):
    """Entered just outside the clock."""

    inner = 99
    watches = "timed"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.known = session.job.device == "cpu" and _ACCOUNTS.exists()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin = _asleep() if self.known else 0
        yield
        if self.known:
            self.seconds.append(max(0, _asleep() - begin) / 1e9)

    def readings(self) -> dict[str, Reading]:
        return {EXPOSED: Reading(value=statistics.median(self.seconds))} if self.seconds else {}


def _asleep() -> int:
    """Nanoseconds of neither computing nor queueing; only differences are meaningful."""
    queued = int(_ACCOUNTS.read_text().split()[1])
    return time.perf_counter_ns() - time.thread_time_ns() - queued


METER = Waiting
METRICS = (Metric(EXPOSED, "exposed communication", SECONDS, optional=True),)
