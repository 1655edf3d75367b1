"""Host memory that a step takes and gives back before anything else counts it, such as a large array of NumPy.

The kernel keeps the most resident bytes of a process, and lets that begin anew (proc(5), clear_refs). What a step takes
includes tensors on a CPU, and malloc keeps some of it for the next step. So only a much larger spike is a difference.
"""

import contextlib
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.meters.host import begin_high_water_mark, high_water_mark
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import BYTES

STEPS = (StepKind.TIMED, StepKind.UNFENCED)  # in others, meters have memory of their own
SLACK = 2**27  # bytes: more than malloc, threads and huge pages move by


class Spikes(Meter):
    """Looks before and after such a step, and after each later one. It sees nothing if the kernel does not allow it."""

    processes = ("script",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.before: int | None = None  # resident bytes when the step began
        self.spikes: list[int] = []

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        if kind in STEPS:
            self.before = begin_high_water_mark()
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind in STEPS:
            self._look()

    def _look(self) -> None:
        if self.before is not None:
            self.spikes.append(max(0, high_water_mark() - self.before))

    def readings(self) -> dict[str, Reading]:
        return self._reading()

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step:
            self._look()
        self.before = begin_high_water_mark()

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        return self._reading()

    def _reading(self) -> dict[str, Reading]:
        if not self.spikes:
            return {}
        return {"host_spike_bytes": Reading(value=max(self.spikes), samples=list(map(float, self.spikes)))}


METER = Spikes
METRICS = (Metric("host_spike_bytes", "host RSS of a step", BYTES, hold="most", bound=0.5, slack=SLACK, optional=True),)
