"""Which share of a script's loop its median step explains, and where the rest is.

The loop begins with the first phase, and its first iteration may have more than a step: a rollout of which many updates
learn, the first compilation. Later steps may be rarer or longer. Steps that perfsuite itself slows are left out.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.units import RATIO

PLAIN = ("warmup", "timed")  # the kinds of steps that are as long as the script makes them
FIRST, LONGER = "the first iteration", "longer steps"


class Coverage(Meter):
    """Times each plain step by its own clock, outside of all other meters."""

    processes = ("script",)
    inner = -3
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.timed: list[float] = []

    @contextlib.contextmanager
    def step(self, kind: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if kind in PLAIN:
            self.seconds.append(time.perf_counter() - begin)
        if kind == "timed":
            self.timed.append(self.seconds[-1])

    def readings(self) -> dict[str, Reading]:
        first, *others = self.trainer.first_seconds
        typical, period = statistics.median(self.timed), self.trainer.period
        whole = first + sum(others) + sum(self.seconds)
        explained = min(whole, typical * ((1 + len(others)) / period + len(self.seconds)))
        beyond = max(0.0, first - typical / period)
        rest = {FIRST: min(beyond, whole - explained), LONGER: max(0.0, whole - explained - beyond)}
        shares = {name: seconds / whole for name, seconds in rest.items()}
        return {"covered_share": Reading(value=explained / whole, phases=shares)}


METER = Coverage
METRICS = (
    Metric("covered_share", "of the loop's time in median steps", RATIO, fold="min", worse="lower", optional=True),
)
