"""A long run: what grows with every step of hundreds or thousands, per step. Ten steps do not show it.

The steps come after all others, in blocks. At a block's end, after a garbage collection, everything is counted that a
training may keep for ever: tensors, memory of the host outside of them, Python's objects, open files, threads, child
processes, shared memory. A leak grows in
every block, and a cache in a few, so the second least growth counts, after the first block, which fills caches. memray
(https://bloomberg.github.io/memray) watches some steps more if something grows, and names the lines.
"""

import contextlib
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.meters._keepers import Keepers
from perfsuite.meters.children import resident_of_children
from perfsuite.meters.host import malloced, resident_bytes
from perfsuite.meters.objects import count
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import LONG_BLOCKS, StepKind
from perfsuite.system.units import BYTES, SECONDS, WHOLE

LEAST = 128  # bytes of host memory per step: less is what a log of losses keeps
FEWEST = 4  # small blocks of Python's per step: fewer are what the log's numbers keep
SHARED = ("/dev/shm/", "/memfd:", "/SYSV")  # how the kernel names what is mapped
FIRST = 2  # counts: before all blocks and after the first, which fills caches


class LongRun(Meter):
    """Counts outside of the steps, and reads nothing if no long run was asked for."""

    processes = OF_STEPS
    order = Order.WITHIN_CLOCK
    watches = StepKind.LONG

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.block = max(1, session.job.long // LONG_BLOCKS)
        self.steps = 0
        self.seconds: list[float] = []  # of the steps of this block
        self.blocks: list[float] = []  # their medians
        self.counts: list[dict[str, int]] = []
        self.objects: dict[str, int] = {}  # by type, at the last count; a list of them would be what grows
        self.left: dict[str, int] | None = None  # the least growth of each type so far, per step
        self.resident: list[int] = []
        self.keepers = Keepers(session)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.session.synchronize()
        self.seconds.append(time.perf_counter() - begin)

    def feed(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        if kind == StepKind.LONG and not self.steps:
            self._count()
        if kind == StepKind.NAMED:
            if not self.keepers.begun and self.grown():
                self.keepers.begin()
            self.keepers.begin_step()
        return contextlib.nullcontext()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind == StepKind.NAMED:
            self.keepers.stepped()
        if kind != StepKind.LONG:
            return
        self.steps += 1
        if self.steps % self.block == 0 and len(self.counts) <= LONG_BLOCKS:
            self.blocks.append(statistics.median(self.seconds))
            self.seconds.clear()
            self._count()

    def _count(self) -> None:
        source = self.session.memory.source if self.session.memory else None
        kept = source.kept_bytes if source else 0
        tensors = source.live_bytes if source and self.session.job.device == "cpu" else 0
        known = {
            "kept_tensor_bytes": kept,
            "kept_host_bytes": malloced() - tensors,
            "kept_blocks": sys.getallocatedblocks(),
            "kept_files": len(os.listdir("/proc/self/fd")),
            "kept_threads": len(os.listdir("/proc/self/task")),
            "kept_processes": len(resident_of_children()),
            "kept_shared_bytes": shared_bytes(),
        }
        if source and source.reserved_bytes is not None:
            known["kept_reserved_bytes"] = source.reserved_bytes
        self.counts.append(known)
        self.resident.append(resident_bytes())
        before, self.objects = self.objects, count(self.session.garbage)[0]
        if len(self.counts) > FIRST:
            grown = {name: (number - before.get(name, 0)) // self.block for name, number in self.objects.items()}
            known = grown if self.left is None else self.left
            least = {name: min(number, known.get(name, 0)) for name, number in grown.items()}
            self.left = {name: number for name, number in least.items() if number > 0}

    def grown(self) -> dict[str, int]:
        """What grows per step, by metric."""
        grown = {name: _least([one[name] for one in self.counts], self.block) for name in self.counts[0]}
        for name, least in (("kept_host_bytes", LEAST), ("kept_blocks", FEWEST)):
            grown[name] = grown[name] if grown[name] >= least else 0
        grown["kept_objects"] = sum((self.left or {}).values())
        return {name: number for name, number in grown.items() if number}

    def readings(self) -> dict[str, Reading]:
        if len(self.counts) <= LONG_BLOCKS:
            return {}
        grown, places = self.grown(), self.keepers.end()
        readings = {}
        for name in (*self.counts[0], "kept_objects"):
            number = grown.get(name, 0)
            named = places.get("files" if name == "kept_files" else "memory", {}) if number else {}
            if name == "kept_objects":
                named = {f"{kind.partition('.')[0]}: {kind}": many for kind, many in (self.left or {}).items()} | named
            readings[name] = Reading(value=number, parts={"kept": number} if number else {}, suspects=named)
        steps = self.block * (len(self.blocks) - 1)
        readings["resident_growth_bytes"] = Reading(value=(self.resident[-1] - self.resident[1]) / steps)
        readings["step_time_growth_seconds"] = Reading(value=_slope(self.blocks) / self.block)
        return readings


def shared_bytes() -> int:
    """The bytes of shared memory that this process has mapped (proc(5), maps)."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, file = line.split(maxsplit=5)
        if file.startswith(SHARED):
            begin, end = addresses.replace("-", " ").split()
            total += int(end, 16) - int(begin, 16)
    return total


def _least(counts: Sequence[int], steps: int) -> int:
    """The growth per step of the blocks after the first: the second least, since one of them may give back what the
    libraries keep for later.
    """
    grown = sorted((after - before) // steps for before, after in itertools.pairwise(counts[FIRST - 1 :]))
    return max(0, grown[1])


def _slope(values: Sequence[float]) -> float:
    """The median of the slopes between all pairs (Theil 1950, Sen 1968): a slow period of the machine does not move
    it.
    """
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((after - before) / (j - i) for (i, before), (j, after) in pairs)


_exact: dict[str, Any] = {"processes": OF_STEPS, "optional": True}
METER = LongRun
METRICS = (
    Metric("kept_tensor_bytes", "long run: tensors grown/step", BYTES, hold="zero", **_exact),
    Metric("kept_host_bytes", "long run: other host memory grown/step", BYTES, hold="zero", **_exact),
    Metric("kept_reserved_bytes", "long run: reserved grown/step", BYTES, **_exact),
    Metric("kept_files", "long run: open files grown/step", WHOLE, hold="zero", **_exact),
    Metric("kept_threads", "long run: threads left/step", WHOLE, hold="zero", **_exact),
    Metric("kept_processes", "long run: child processes left/step", WHOLE, hold="zero", **_exact),
    Metric("kept_shared_bytes", "long run: shared memory grown/step", BYTES, hold="zero", **_exact),
    Metric("kept_objects", "long run: objects left/step", WHOLE, hold="exact", depends_on=("python",), **_exact),
    Metric("kept_blocks", "long run: small blocks left/step", WHOLE, hold="exact", depends_on=("python",), **_exact),
    Metric("resident_growth_bytes", "long run: host RSS grown/step", BYTES, **_exact),
    Metric("step_time_growth_seconds", "long run: step time grown/step", SECONDS, worse="different", **_exact),
)
