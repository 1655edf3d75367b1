"""Exposed communication: how long a step waits idle for other ranks; the median of the timed steps.

On a CPU a rank computes in one thread, which sleeps only while a collective is not done. Its sleep is the step's time
minus computing time and minus waiting time for a core (the kernel's counters, read before and after the clock). On CUDA
the thread also waits for the device, so it is not measured there.

Stragglers: the rank that sleeps least in a step is the one that the others wait for. How much longer they sleep is its
share of the step; the median of the timed steps. The evidence is how many steps each rank was the slowest of.
"""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.everywhere import everywhere
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import EXPOSED
from perfsuite.system.units import RATIO, SECONDS

_ACCOUNTS = Path("/proc/thread-self/schedstat")  # nanoseconds on a core, nanoseconds in the queue, turns


class Waiting(Meter):
    """Entered just outside the clock."""

    order = Order.AROUND_CLOCK
    watches = StepKind.TIMED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.whole: list[float] = []  # of the same steps
        self.known = session.job.device == "cpu" and _ACCOUNTS.exists()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin, clock = _asleep() if self.known else 0, time.perf_counter()
        yield
        if self.known:
            self.seconds.append(max(0, _asleep() - begin) / 1e9)
            self.whole.append(time.perf_counter() - clock)

    def readings(self) -> dict[str, Reading]:
        if not self.seconds:
            return {}
        readings = {EXPOSED: Reading(value=statistics.median(self.seconds))}
        asleep = [] if self.session.job.times_only else everywhere(self.seconds)
        if len(asleep) > 1:
            readings["straggler_share"] = straggler(asleep, self.whole)
        return readings


def straggler(asleep: Sequence[Sequence[float]], whole: Sequence[float]) -> Reading:
    """The share of a step that the others wait for its slowest rank, of each rank's seconds asleep, step by step."""
    shares, slowest = [], Counter[int]()
    for seconds, step in zip(zip(*asleep, strict=True), whole, strict=True):
        least = min(seconds)
        slowest[seconds.index(least)] += 1
        others = (sum(seconds) - least) / (len(seconds) - 1)
        shares.append((others - least) / step)
    named = {f"slowest: rank {rank}": steps for rank, steps in slowest.most_common()}
    return Reading(value=statistics.median(shares), suspects=named)


def _asleep() -> int:
    """Nanoseconds of neither computing nor queueing; only differences are meaningful."""
    queued = int(_ACCOUNTS.read_text().split()[1])
    return time.perf_counter_ns() - time.thread_time_ns() - queued


METER = Waiting
METRICS = (
    Metric(EXPOSED, "exposed communication", SECONDS, optional=True),
    Metric("straggler_share", "waiting for the slowest rank", RATIO, optional=True),
)
