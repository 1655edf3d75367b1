"""What a rank does and keeps over time: a Chrome trace and a memory snapshot, only in launches that are traced.

The trace has the phases of every step, the live bytes of the recorded steps by category, and what torch's profiler sees
in two steps. In the last recorded step each operator is beside the bytes that it allocates, but recording makes the
step slow, and its collectives end where they begin. The last step of all is as in training.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import PROCESSES
from perfsuite.rank.memory.anatomy import CATEGORIES, levels
from perfsuite.rank.memory.snapshot import keep_snapshot
from perfsuite.rank.memory.whereabouts import watch
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records import chrome
from perfsuite.records.job import TRACE
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import part_name

ARROWS = 2**24  # more than a step has
STEPS, MODULES = chrome.FIRST_THREAD, chrome.FIRST_THREAD + 1  # threads of the trace
PROFILED = {StepKind.TRACED: "memory recorded", StepKind.PROFILED: "as in training"}  # steps with a profiler
WRITTEN = ("traceEvents", "displayTimeUnit", "baseTimeNanoseconds")  # fields that are not torch's any more
COUNTER, ALL = "memory (bytes)", "all"  # the counters' name, and that of the categories' sum


class Timeline(Meter):
    """Its moments are in nanoseconds since 1970, as those of torch's profiler and of the allocators."""

    processes = tuple(PROCESSES)
    launches = ("traced",)
    order = Order.TIMELINE

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.steps: list[tuple[str, int, int]] = []
        self.phases: list[list[tuple[str, int]]] = []
        self.modules: list[tuple[str, int]] = []
        self.profiles: dict[str, Any] = {}  # of the last step of each kind
        self.running: Any = None
        session.phases.listen(self._mark)

    def _mark(self, phase: str) -> None:
        if phase in ("batch", "compile"):
            self.phases.append([])
        if self.phases:
            self.phases[-1].append((phase, time.time_ns()))

    @contextlib.contextmanager
    def feed(self, kind: StepKind) -> Iterator[None]:
        if kind in PROFILED:
            self.running = _profiler(self.session)
            self.running.start()
        yield

    @contextlib.contextmanager
    def step(self, kind: StepKind) -> Iterator[None]:
        if kind not in PROFILED:
            yield
            self._mark("")
            return
        with watch(self.trainer.model, self._enter, self.session):
            yield
        self.session.synchronize()
        self._mark("")
        self.running.stop()

    def _enter(self, module: str) -> None:
        self.modules.append((str(module), time.time_ns()))  # a step's name is no plain text, which a record needs

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind in PROFILED and not (kind in self.profiles and outcome.skipped):
            self.profiles[kind] = self.running
        moments = self.phases[-1]
        known = PROFILED.get(kind, kind) if kind != StepKind.TRACED or self.session.memory else StepKind.PROFILED
        self.steps.append((known, moments[0][1], moments[-1][1]))

    def readings(self) -> dict[str, Reading]:
        """None: it writes its files."""
        keep_snapshot(self.session)
        recordings = [self._exported(kind) for kind in self.profiles]
        base = self.steps[0][1]
        of_torch = [
            event
            for number, recording in enumerate(recordings)
            for event in chrome.moved(recording, base, number * ARROWS)
        ]
        whole = {name: value for name, value in recordings[0].items() if name not in WRITTEN}
        path = Path(TRACE.format(prefix=self.session.job.traces, rank=self.session.rank))
        events = chrome.side_by_side([*of_torch, *self._own(base)], MODULES + 1)
        chrome.write(path, events, **whole, baseTimeNanoseconds=base)
        return {}

    def _exported(self, kind: str) -> dict[str, Any]:
        assert self.session.scratch
        self.session.scratch.mkdir(exist_ok=True)
        path = self.session.scratch / f"rank{self.session.rank}.{kind}.json"
        self.profiles[kind].export_chrome_trace(str(path))
        trace = chrome.read(path)
        path.unlink()
        return trace

    def _own(self, base: int) -> Iterator[chrome.Event]:
        """The events that torch's profiler does not have; ``base`` is its time 0."""
        process = os.getpid()
        yield from chrome.name_thread(process, STEPS, "steps", -2)
        yield from chrome.name_thread(process, MODULES, "modules", -1)
        for number, (kind, begin, end) in enumerate(self.steps, 1):
            yield _slice(process, STEPS, f"step {number} ({kind})", begin - base, end - base, "step")
        for moments in self.phases:
            for (phase, begin), (_, end) in itertools.pairwise(moments):
                if phase:
                    yield _slice(process, STEPS, phase, begin - base, end - base, "phase")
        for (module, begin), (_, end) in itertools.pairwise(self.modules):
            if module:
                yield _slice(process, MODULES, module, begin - base, end - base, "module")
        memory = self.session.memory
        if memory is None:
            return
        times, live = memory.times, dict.fromkeys(CATEGORIES, 0)
        changes = list(levels(memory.events, memory.marks, self.session.strategy.engine.own))
        used = {name for _, changed in changes for name, size in changed.items() if size}
        for index, changed in changes:
            live |= changed
            values = {part_name(name): size for name, size in changed.items() if name in used}
            yield chrome.counter(process, COUNTER, (times[index] - base) / 1e3, values | {ALL: sum(live.values())})
        # Not known any more: the last value would look like a measurement.
        over = dict.fromkeys([*(part_name(name) for name in CATEGORIES if name in used), ALL], 0)
        yield chrome.counter(process, COUNTER, (times[-1] - base) / 1e3, over)


def _slice(process: int, thread: int, name: str, begin: int, end: int, kind: str) -> chrome.Event:
    return chrome.span(process, thread, name, begin / 1e3, (end - begin) / 1e3, {}, kind)


def _profiler(session: Session) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if session.job.device == "cuda" else [])]
    return profile(activities=activities, record_shapes=True)


METER = Timeline
METRICS: tuple[Metric, ...] = ()
