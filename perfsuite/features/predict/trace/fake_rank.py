"""Runs the code of a rank on fake tensors, as rank/main.py does on real ones, and records what it would allocate."""

import contextlib
import gc
import hashlib
import resource
import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from perfsuite.features.predict.trace import distributed, missing, overrides
from perfsuite.features.predict.trace.allocation_timeline import AllocationTimeline
from perfsuite.features.predict.trace.counts import counters
from perfsuite.features.predict.trace.recorder import Recorder
from perfsuite.features.predict.trace.repeats import RepeatingMode
from perfsuite.features.predict.trace_records import Trace, TraceJob, TraceMark
from perfsuite.rank.main import drive
from perfsuite.rank.meter import Meter
from perfsuite.rank.results import versions
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.step_kinds import StepKind


class Prepared(Exception):
    """The first batch would begin, but no step is asked for."""


class Marks(Meter):
    """Writes the beginnings of phases and the owners of storages into the recorder's events, like the memory meter."""

    def __init__(self, session: Session, recorder: Recorder, stepping: bool = True) -> None:
        super().__init__(session)
        self.recorder = recorder
        self.stepping = stepping
        self.trainer: Any = None
        self.marks: list[TraceMark] = []
        self.traced = (0, 0)  # events and marks of the traced steps
        self.setup = ""
        self._before = hashlib.sha256()
        session.phases.listen(self.mark)
        recorder.watchers.append(self._follow)

    def mark(self, phase: str) -> None:
        """A phase begins."""
        if self.trainer is None:
            return
        if phase == "batch":
            gc.collect()  # cycles from building and preparing, which Python would collect at an arbitrary time
        named: dict[int, str] = {}
        with self.recorder.paused():
            for category, tensor in self.trainer.storages():
                number = self.recorder.known(tensor)
                if number:
                    named.setdefault(number, category)
        if not self.setup:
            self.recorder.watchers.remove(self._follow)
            self._before.update(f"{self.recorder.events} {list(self.recorder.numbers)} {named}".encode())
            self.setup = self._before.hexdigest()
            if not self.stepping:
                raise Prepared
        self.recorder.events.append((-1, len(self.marks), 0, 0))
        self.marks.append(TraceMark(phase=phase, named=named))

    def _follow(self, recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        shapes = [tuple(leaf.shape) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self._before.update(f"{func} {shapes}".encode())

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        """Later steps, such as a counted step with its dispatch modes, are not part of the trace."""
        if kind == StepKind.TRACED:
            self.traced = (len(self.recorder.events), len(self.marks))


@missing.explained()
@missing.experts_refused()
def trace(job: TraceJob, session: Session) -> Trace:
    """Trace the rank's first steps. Raises RankError (Unsupported, WrongEngine) if the cell cannot run."""
    begin = time.process_time()
    torch.set_num_threads(1)
    distributed.join(session)
    _ = session.mesh  # made of real numbers
    recorder = Recorder()
    marks = Marks(session, recorder, job.steps > 0)
    counting = counters(session) if job.counted else []
    timing = [AllocationTimeline(session, recorder)] if job.timed else []
    gc.disable()  # the time of collections would depend on the number of objects
    with (
        contextlib.suppress(Prepared),
        overrides.applied(recorder, job, session),
        recorder.places.followed(),
        RepeatingMode(),
        recorder,
    ):
        kinds = [StepKind.TRACED] * max(1, job.steps)
        kinds += [StepKind.COUNTED] * job.counted + [StepKind.TIMED] * job.timed
        drive(session, [marks, *counting, *timing], kinds, {})
    events, phases = marks.traced
    return Trace(
        events=recorder.events[:events],
        labels=list(recorder.numbers),
        marks=marks.marks[:phases],
        versions=versions(session),
        seconds=time.process_time() - begin,
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        readings={name: reading for meter in counting for name, reading in meter.readings().items()},
        setup=marks.setup,
        operations=[operation for meter in timing for operation in meter.operations],
    )
