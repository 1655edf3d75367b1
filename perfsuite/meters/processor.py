"""Processor time: the cores' time for a rank's step, in all of its threads, without waits for a busy core.

Other processes make a step wait for a core, which makes the step longer but not its processor time. So on a shared
machine it shows smaller differences between two environments than the clock does. What a step waits for, a message
or a disk, is in the step time alone. On an accelerator the host's part is not what a step costs, and is not measured.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter, Order
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import SECONDS


class Processor(Meter):
    """Entered just before the clock."""

    processes = OF_STEPS
    order = Order.AROUND_CLOCK
    watches = StepKind.TIMED

    def __init__(self, session: object) -> None:
        super().__init__(session)  # type: ignore[arg-type]
        self.seconds: list[float] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin = time.process_time_ns()
        yield
        if self.session.job.device == "cpu":
            self.seconds.append((time.process_time_ns() - begin) / 1e9)

    def readings(self) -> dict[str, Reading]:
        if not self.seconds:
            return {}
        value = statistics.median(self.seconds)
        return {"processor_time_seconds": Reading(value=value, samples=list(self.seconds))}


METER = Processor
METRICS = (
    # Summed, since moving work to another rank is no gain; no accelerator has it.
    Metric("processor_time_seconds", "processor time", SECONDS, fold="sum", hold="time", optional=True),
)
