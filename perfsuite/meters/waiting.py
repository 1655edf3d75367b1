"""Exposed communication: how long a step waits idle for other ranks; the median of the timed steps.

On a CPU a rank computes in one thread, which sleeps only while a collective is not done. Its sleep is the step's time
minus computing time and minus waiting time for a core (the kernel's counters, read before and after the clock). On CUDA
the thread also waits for the device, so it is not measured there.

A script sleeps for other reasons too. So of its step, the sleep in forward, backward and optimizer counts, if it
computes in one thread, and elsewhere that in ``torch.distributed.Work.wait``. The evidence is the lines of the user's
that waited.

Stragglers: the rank that sleeps least in a step is the one that the others wait for. How much longer they sleep is its
share of the step; the median of the timed steps. The evidence is how many steps each rank was the slowest of.
"""

import contextlib
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import WITH_OWN
from perfsuite.rank.everywhere import everywhere
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer
from perfsuite.rank.users_lines import UsersLines
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import EXPOSED, LINE
from perfsuite.system.units import RATIO, SECONDS

TRAINS = ("forward", "backward", "optimizer")
MICROSECOND = 1000  # nanoseconds


class Waiting(Meter):
    """Entered just outside the clock."""

    processes = WITH_OWN
    order = Order.AROUND_CLOCK
    watches = StepKind.TIMED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.seconds: list[float] = []
        self.whole: list[float] = []  # of the same steps
        self.known = session.job.device == "cpu" and _accounts().exists()
        self.script: ScriptWaits | None = None
        if self.known:
            _asleep()  # what it opens is not the script's

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        if self.session.strategy.engine.own:
            self.known &= self.session.world_size > 1
            if self.known:
                self.script = ScriptWaits(trainer)
                self.session.phases.listen(self.script.mark)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin, clock = _asleep() if self.known else 0, time.perf_counter()
        with self.script.watching() if self.script else contextlib.nullcontext():
            yield
        if self.known:
            asleep = self.script.asleep if self.script else max(0, _asleep() - begin)
            self.seconds.append(asleep / 1e9)
            self.whole.append(time.perf_counter() - clock)

    def readings(self) -> dict[str, Reading]:
        if not self.seconds:
            return {}
        lines = {LINE: dict(self.script.lines)} if self.script and self.script.lines else {}
        readings = {EXPOSED: Reading(value=statistics.median(self.seconds), lines=lines)}
        asleep = [] if self.session.job.times_only else everywhere(self.seconds)
        if len(asleep) > 1:
            readings["straggler_share"] = straggler(asleep, self.whole)
        return readings


class ScriptWaits:
    """The nanoseconds that a script's thread sleeps for other ranks, in the steps that are watched."""

    def __init__(self, trainer: Any) -> None:
        import torch

        self.lines: Counter[str] = Counter()  # microseconds
        self._watched, self._users = trainer.watched, UsersLines()
        self._computes_alone = torch.get_num_threads() == 1  # else it sleeps while others compute
        self.asleep = 0  # in the last step
        self._since = 0
        self._phase = self._line = ""
        self._runs = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a step."""
        self.asleep, self._phase, self._runs = 0, "", True
        try:
            with self._watched.waits_by(self._wait):
                yield
        finally:
            self.mark("")
            self._runs = False

    def mark(self, phase: str) -> None:
        """A phase of the step begins, and that before it ends."""
        if not self._runs:
            return
        self._end()
        self._phase = phase
        if phase in TRAINS:
            self._line = self._users.innermost(sys._getframe(1))
            self._since = _asleep()

    def _wait(self, wait: Callable[[], Any]) -> Any:
        """Call it: the user's line waits for a collective."""
        self._end()
        begin = _asleep()
        try:
            return wait()
        finally:
            self._since = _asleep()
            self._add(self._since - begin, self._users.innermost(sys._getframe(1)))

    def _end(self) -> None:
        """What is asleep in a phase of training until now, beside waits."""
        if self._phase in TRAINS and self._computes_alone:
            self._add(_asleep() - self._since, self._line)

    def _add(self, nanoseconds: int, line: str) -> None:
        self.asleep += max(0, nanoseconds)
        if line and nanoseconds >= MICROSECOND:
            self.lines[line] += nanoseconds // MICROSECOND


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


def _accounts() -> Path:
    """Nanoseconds on a core, nanoseconds in the queue, and turns of the calling thread."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")


_open: dict[int, int] = {}  # the descriptor by the thread


def _asleep() -> int:
    """Nanoseconds of neither computing nor queueing of the calling thread; only differences are meaningful."""
    thread = threading.get_native_id()
    if thread not in _open:
        _open[thread] = os.open(_accounts(), os.O_RDONLY)
    queued = int(os.pread(_open[thread], 64, 0).split()[1])
    return time.perf_counter_ns() - time.thread_time_ns() - queued


METER = Waiting
METRICS = (
    Metric(EXPOSED, "exposed communication", SECONDS, optional=True),
    Metric("straggler_share", "waiting for the slowest rank", RATIO, optional=True),
)
