"""The pace: a fixed piece of plain Python between the steps, by which a slow moment of the machine is known.

A neighbour on the same core makes a tiny model's step half as slow again, for a second or for an hour, and this piece
of work with it. It uses no library, so that it means the same after any upgrade but Python's own; matmuls, copies and
messages are the control's, which cannot run between the steps without cooling their caches. What a library does to the
interpreter is kept out: tracing and garbage collection are off for the while, and where memory is traced or code
monitored, which cannot be, there is no pace.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterator

from perfsuite.catalog.definitions import Metric
from perfsuite.records import Reading
from perfsuite.training.meters._base import Meter
from perfsuite.training.trainer import StepOutcome
from perfsuite.units import show_seconds

TURNS = 12_000  # of the loop: about a millisecond
ENTRIES = 1024  # of the table: what stays in a core's own cache


class Pace(Meter):
    """Of each timed step, the mean of the round before it and the one behind it. Not under a capacity: time is not
    held there.
    """

    def __init__(self, session: object) -> None:
        super().__init__(session)  # type: ignore[arg-type]
        self.seconds: list[float] = []
        self.watched = False

    def stepped(self, kind: str, outcome: StepOutcome) -> None:
        if self.session.job.capacity_bytes is not None or kind not in ("traced", "warmup", "timed"):
            return
        self.watched |= _is_watched()
        if self.watched:
            return
        if kind != "timed":
            self.seconds.clear()  # of what comes before the timed steps, the last round alone is beside one
        self.seconds.append(_round())

    def readings(self) -> dict[str, Reading]:
        if self.watched:
            return {}
        pairs = zip(self.seconds, self.seconds[1:], strict=False)
        beside = [(before + behind) / 2 for before, behind in pairs]
        return {"pace_seconds": Reading(value=statistics.median(beside), samples=list(beside))} if beside else {}


def _round() -> float:
    """CPU seconds of one round, so that the core counts and not who else waits for it: a little arithmetic, small
    objects and a table, as an interpreter does between kernels.
    """
    table: dict[int, tuple[int, int]] = {}
    with _undisturbed():
        begin = time.thread_time_ns()
        for number in range(TURNS):
            table[number % ENTRIES] = (number, len(table))
        return (time.thread_time_ns() - begin) / 1e9


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Without a trace function, a profile function and the garbage collector, whose work is the library's objects."""
    trace, profile, collects = sys.gettrace(), sys.getprofile(), gc.isenabled()
    sys.settrace(None)
    sys.setprofile(None)
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        sys.setprofile(profile)
        sys.settrace(trace)


def _is_watched() -> bool:
    """Whether Python is slowed in a way that cannot be put off and on again: tracemalloc, cProfile (whose function is
    not Python's to call) and what PEP 669 calls tools.
    """
    monitoring = getattr(sys, "monitoring", None)
    return (
        tracemalloc.is_tracing()
        or not callable(sys.getprofile() or len)
        or (monitoring is not None and any(monitoring.get_tool(number) for number in range(6)))
    )


METER = Pace
METRICS = (
    Metric(
        name="pace_seconds",
        title="pace",
        show=show_seconds,
        fold="mean",  # a step waits for the slower of two cores, but not all of it does
        hold="control",
        optional=True,
    ),
)
