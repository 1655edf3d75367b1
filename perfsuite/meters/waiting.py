"""Exposed communication: how long a step waits for other ranks with nothing to do meanwhile; the median of timed steps.

On a CPU a rank computes in one thread, which sleeps only where a collective is not done yet: what it slept is a step's
time less what it computed and less what it stood in the queue for a core (the kernel's accounts, read before and behind
the clock). On CUDA the thread waits for the device too, so there it tells nothing and is not measured.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.suspects import EXPOSED
from perfsuite.units import show_seconds
from perfsuite.wire.sample import Reading

_ACCOUNTS = Path("/proc/thread-self/schedstat")  # nanoseconds on a core, nanoseconds in the queue, turns


class Waiting(Meter):
    """Just outside the clock."""

    inner = 99

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.known = session.job.device == "cpu" and _ACCOUNTS.exists()

    @contextlib.contextmanager
    def step(self, kind: str) -> Iterator[None]:
        if kind != "timed" or not self.known:
            yield
            return
        begin = _asleep()
        yield
        self.seconds.append(max(0, _asleep() - begin) / 1e9)

    def readings(self) -> dict[str, Reading]:
        return {EXPOSED: Reading(value=statistics.median(self.seconds))} if self.seconds else {}


def _asleep() -> int:
    """Nanoseconds that were neither computed nor queued for; only differences mean something."""
    queued = int(_ACCOUNTS.read_text().split()[1])
    return time.perf_counter_ns() - time.thread_time_ns() - queued


METER = Waiting
METRICS = (Metric(name=EXPOSED, title="exposed communication", show=show_seconds, optional=True),)
