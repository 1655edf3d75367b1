"""Host memory that a cell's model keeps outside of tensors in each step: Python objects, arrays of NumPy, what a
library in C has of malloc. A log or a cache grows in some steps, a leak in all. A script's is in own_host.py.
"""

import contextlib
import gc
import itertools
from collections.abc import Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.meters.host import given_out, malloced
from perfsuite.rank.memory.recorder import open_source
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import BYTES

FEWEST = 5  # timed steps
LEAST = 32768  # bytes per step: what engines log and what is recorded of a step is less


class HostLeaks(Meter):
    """Counts before the batch of each timed step is made. It sees nothing without glibc 2.33 or newer."""

    processes = ("training",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.source = open_source(session)
        self.counts: list[int] = []  # bytes

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        if kind == StepKind.TIMED and malloced():
            if gc.isenabled():  # otherwise memory.py collects in each step
                self.session.garbage.collect()
            tensors = self.source.live_bytes if self.session.job.device == "cpu" else 0
            self.counts.append(given_out() - tensors)
        return contextlib.nullcontext()

    def readings(self) -> dict[str, Reading]:
        left = left_by_each(self.counts)
        return {"host_left_bytes": Reading(value=left, parts={"kept": left} if left else {})} if malloced() else {}


def left_by_each(counts: Sequence[int]) -> int:
    """The bytes that each step has added at least, by those before each; 0 if they are few, or if the steps are."""
    added = [after - before for before, after in itertools.pairwise(counts)]
    least = min(added) if len(added) >= FEWEST else 0
    return least if least >= LEAST else 0


METER = HostLeaks
METRICS = (Metric("host_left_bytes", "host memory left/step", BYTES, hold="zero", optional=True),)
