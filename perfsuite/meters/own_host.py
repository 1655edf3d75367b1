"""Host memory of a script outside of tensors: what malloc has given out to Python, NumPy and libraries, and what these
have mapped themselves. A CUDA driver maps memory of its own, so on a GPU only malloc counts.

Resident bytes hide it, since libraries and the allocators' caches are most of them. The peak is that of the beginnings
of phases in the warm-up steps, without what was there when the script imported torch, and without what imports of
libraries have allocated since then: a script may import torch first or last, and libraries import more when used.
A leak grows in each step, and what is made once grows in one. So the least growth counts: that of a timed step in the
mean, and that of each single step after them. Three blocks of later steps know better: a cache has ended, what is freed
in measured steps hides nothing, and something may begin to grow late. An epoch that ends within a block frees more than
a leak adds, so the later steps are also asked one by one. What all of them add is compared, too.
"""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._growth import BLOCK, BLOCKS, ONE_BY_ONE, ends_block, is_asked_at, least_growth, nearly_each
from perfsuite.meters.host import Mapped, given_out, malloced, mapped
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
        self.later_bytes: list[int] = []  # before the later steps, and after each of their blocks
        self.each_later: list[int] = []  # bytes after each of the first later steps, with what was garbage
        self.garbage_bytes = 0  # of these steps
        self.counts: list[tuple[str, int, int]] = []  # kind of the step that begins, steps before it, bytes
        session.phases.listen(self._mark)
        if boot.started:
            boot.started.count_bytes(self._bytes)

    def _bytes(self) -> int:
        """Of malloc and maps, but for tensors on a CPU."""
        now, before = self._mapped(), self.mapped_before
        maps = now.shared - before.shared + max(0, now.private - before.private - FLOOR)
        return malloced() + maps - self._tensors()

    def _tensors(self) -> int:
        memory = self.session.memory
        on_cpu = memory and self.session.job.device == "cpu"
        return memory.source.live_bytes - memory.source.adopted_bytes if memory and on_cpu else 0

    def _given_out(self) -> int:
        """Of malloc, and at least of Python's allocator, but for tensors."""
        return given_out() - self._tensors()

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
        grown = grown_measured(self.counts)
        self.has_grown = bool(grown)
        return {"host_memory_bytes": Reading(value=self.peak), **self._growth(grown)}

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step <= ONE_BY_ONE:
            self._ask_one(step)
        if not ends_block(step):
            return
        if self.has_grown and is_asked_at(step):
            self.session.garbage.collect()
        self.later_bytes.append(self._bytes())
        *_, after = before = self.later_bytes[-2:]
        self.grows_late |= after - before[0] >= BLOCK * LEAST
        if len(self.later_bytes) == BLOCKS + 1 and grown_later(self.later_bytes):  # perhaps of what nobody uses
            self.session.garbage.collect()
            self.later_bytes[-1] = self._bytes()

    def _ask_one(self, step: int) -> None:
        self.each_later.append(self._given_out() + self.garbage_bytes)
        if step and ends_block(step) and _or_none(nearly_each(self.each_later)):
            self.session.garbage.collect()
            self.garbage_bytes = self.each_later[-1] - self._given_out()

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        if not malloced():
            return {}
        knows_better = len(self.later_bytes) > BLOCKS
        grown = grown_later(self.later_bytes) if knows_better else grown_measured(self.counts)
        return self._growth(grown or grown_one_by_one(self.each_later, self.garbage_bytes))

    def _growth(self, grown: int) -> dict[str, Reading]:
        added = [float(max(0, after - self.later_bytes[0])) for after in self.later_bytes]
        return {
            "host_added_bytes": Reading(value=max(added, default=0.0), samples=[*added] or [0.0]),
            "host_grown_bytes": Reading(value=grown, parts={"kept": grown} if grown else {}),
        }


def grown_measured(counts: Sequence[tuple[str, int, int]]) -> int:
    """Bytes that a measured step has left, by ``counts``: the kind of a step, the steps before it, and bytes."""
    steps = itertools.pairwise([count for count in counts if count[0] != StepKind.WARMUP])
    rates = [(after - before) // (then - now) for (_, now, before), (_, then, after) in steps if then > now]
    return _or_none(min(rates, default=0))


def grown_later(counts: Sequence[int]) -> int:
    """The same of later steps, by the bytes before their first block and after each."""
    return _or_none(least_growth(counts))


def grown_one_by_one(counts: Sequence[int], garbage: int) -> int:
    """The same by the bytes after each later step; 0 if half of it was ``garbage``, which the next collection frees."""
    rate = nearly_each(counts)
    return _or_none(rate) if 2 * garbage < rate * (len(counts) - 1) else 0


def _or_none(rate: int) -> int:
    return rate if rate >= LEAST else 0


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
