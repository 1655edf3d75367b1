"""Host memory of a script outside of tensors: what malloc has given out to Python, NumPy and libraries, and what these
have mapped themselves. A CUDA driver maps memory of its own, so on a GPU only malloc counts.

Resident bytes hide it, since libraries and the allocators' caches are most of them. The peak is that of the beginnings
of phases in the warm-up steps, without what was there when the script imported torch, and without what imports of
libraries have allocated since then: a script may import torch first or last, and libraries import more when used.
A leak grows in each step, and what is made once grows in one. So the least growth counts: that of a timed step in the
mean, and that of each single step after them. What no longer grows in later steps is a cache, and what these add is
compared, too: something may begin to grow late.
"""

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._growth import ends_block, goes_on, is_asked_at
from perfsuite.meters.host import Mapped, malloced, mapped
from perfsuite.rank.meter import Meter
from perfsuite.rank.script import boot
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import BYTES

LEAST = 16384  # bytes per step: less is what logs of losses, queues and caches of libraries, and this recording keep
SLACK = 4 * 2**20  # bytes: garbage that imports leave is freed in a later step, 1.6 MiB of pandas's on Python 3.13
FLOOR = 2**26  # private maps: what Python's own allocator and stacks of threads have is not known exactly
COUNTED = (StepKind.WARMUP, StepKind.UNFENCED, StepKind.CALLED)  # counted at their beginning, and at the first timed


class OwnHost(Meter):
    """Counts outside of all steps that are recorded or timed. It sees nothing without glibc 2.33 or newer."""

    processes = ("script",)
    early = True

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.trainer: Any = None
        self.mapped_before = self._mapped()
        self.before = self._bytes()
        self.peak = 0
        self.kind = ""
        self.steps = 0  # so far
        self.later_bytes: list[int] = []
        self.later_begun = 0
        self.added: list[float] = []  # by the blocks of later steps
        self.counts: list[tuple[str, int, int]] = []  # kind of the step that begins, steps before it, bytes
        session.phases.listen(self._mark)
        if boot.started:
            boot.started.count_bytes(self._bytes)

    def _bytes(self) -> int:
        """Of malloc and maps, but for tensors on a CPU."""
        memory, now, before = self.session.memory, self._mapped(), self.mapped_before
        on_cpu = memory and self.session.job.device == "cpu"
        tensors = memory.source.live_bytes - memory.source.adopted_bytes if memory and on_cpu else 0
        maps = now.shared - before.shared + max(0, now.private - before.private - FLOOR)
        return malloced() + maps - tensors

    def _mapped(self) -> Mapped:
        return mapped() if self.session.job.device == "cpu" else Mapped()

    def _mark(self, phase: str) -> None:
        if self.kind == StepKind.WARMUP:
            imported = boot.started.import_bytes if boot.started else 0
            self.peak = max(self.peak, self._bytes() - self.before - imported)

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        first = kind == StepKind.TIMED and self.kind != StepKind.TIMED
        self.kind = kind
        if first or kind in COUNTED:
            self.session.garbage.collect()
            self.counts.append((kind, self.steps, self._bytes()))
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += 1

    def readings(self) -> dict[str, Reading]:
        if not malloced():
            return {}
        grown = self._grown()
        self.has_grown = bool(grown)
        readings = {"host_memory_bytes": Reading(value=self.peak)}
        readings["host_added_bytes"] = self._added()
        readings["host_grown_bytes"] = Reading(value=grown, parts={"kept": grown} if grown else {})
        return readings

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if not step:
            self.later_begun = self._bytes()
        elif ends_block(step):
            self.added.append(max(0.0, self._bytes() - self.later_begun))
        if self.has_grown and is_asked_at(step):
            self.session.garbage.collect()
            self.later_bytes.append(self._bytes())

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        rate = int(readings["host_grown_bytes"].value) if self.has_grown else 0
        grown = {} if goes_on(self.later_bytes, rate) else {"host_grown_bytes": Reading(value=0)}
        return grown | ({"host_added_bytes": self._added()} if malloced() else {})

    def _added(self) -> Reading:
        return Reading(value=max(self.added, default=0.0), samples=[0.0, *self.added])

    def _grown(self) -> int:
        counts = [count for count in self.counts if count[0] != StepKind.WARMUP]
        rates = [
            (after - before) // (then - now)
            for (_, now, before), (_, then, after) in itertools.pairwise(counts)
            if then > now
        ]
        least = min(rates, default=0)
        return least if least >= LEAST else 0


METER = OwnHost
METRICS = (
    Metric(
        "host_memory_bytes",
        "host memory outside of tensors",
        BYTES,
        hold="about",
        bound=0.1,
        slack=SLACK,
        optional=True,
    ),
    Metric(
        "host_added_bytes", "host memory of later steps", BYTES, hold="most", bound=0.1, slack=4 * SLACK, optional=True
    ),
    Metric("host_grown_bytes", "host memory grown/step", BYTES, hold="about", bound=0.05, slack=LEAST, optional=True),
)
