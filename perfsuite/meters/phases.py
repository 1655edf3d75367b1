"""The time of a step by phase: making the data, forward, backward, optimizer; the median of the timed steps.

It reads the clock (on CUDA: puts an event into the stream) at the marks that every engine sets anyway, five to a step,
which costs a step a few microseconds. So it is always on, and the run that finds a slow-down also explains it:
another run might explain something else. A phase that a script names itself is a part of what is "other".

The stages of reinforcement learning (rank/script/rollouts.py) are times that are held, and so is the update behind
them: forward, backward and optimizer.
"""

import contextlib
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import WITH_OWN
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import PHASES, STAGES
from perfsuite.system.units import SECONDS

# The phase that a mark begins: gradients are freed after the "end" mark.
_BEGINS = {"batch": "data", **{phase: phase for phase in PHASES}, "end": "optimizer"}
UPDATE = ("forward", "backward", "optimizer")


class Phases(Meter):
    """A rank's data is made before the ranks start the step together, and its time includes the wait for the others."""

    processes = WITH_OWN
    order = Order.PHASES

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.moments: list[tuple[str, Any]] = []
        self.steps: list[list[tuple[str, Any]]] = []
        session.phases.listen(self._mark)

    def _mark(self, phase: str) -> None:
        if phase == "batch":
            self.moments = []
        named = phase in PHASES and self.session.phases.phase
        self.moments.append((named or _BEGINS.get(phase, ""), self._now()))

    def _now(self) -> Any:
        if self.session.job.device == "cpu":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextlib.contextmanager
    def step(self, kind: StepKind) -> Iterator[None]:
        self._mark("")
        yield
        self._mark("")
        if kind == StepKind.TIMED:
            self.steps.append(self.moments)

    def readings(self) -> dict[str, Reading]:
        self.session.synchronize()
        sums = [self._sum(moments) for moments in self.steps]
        known = (*PHASES, *sorted({phase for seconds in sums for phase in seconds} - PHASES.keys()))
        medians = {phase: statistics.median(seconds[phase] for seconds in sums) for phase in known}
        named = {phase: seconds for phase, seconds in medians.items() if phase not in PHASES and seconds}
        readings = {
            f"{phase}_seconds": Reading(value=medians[phase])
            for phase, processes in PHASES.items()
            if self.session.strategy.engine.process in processes
        }
        if named:
            whole = medians["other"] + sum(named.values())
            readings["other_seconds"] = Reading(value=whole, phases=named)
        return readings | self._stages(sums)

    def _stages(self, sums: list[Counter[str]]) -> dict[str, Reading]:
        """The time of each stage in each step, and of the update; nothing without a stage."""
        stages: dict[str, list[float]] = {stage: [seconds[stage] for seconds in sums] for stage in STAGES}
        stages = {stage: samples for stage, samples in stages.items() if any(samples)}
        if stages:
            stages["update"] = [sum(seconds[phase] for phase in UPDATE) for seconds in sums]
        return {
            f"{stage}_seconds": Reading(value=statistics.median(samples), samples=list(samples))
            for stage, samples in stages.items()
        }

    def _sum(self, moments: list[tuple[str, Any]]) -> Counter[str]:
        seconds: Counter[str] = Counter()
        for (phase, begin), (_, end) in itertools.pairwise(moments):
            if phase:
                cuda = self.session.job.device != "cpu"
                seconds[phase] += begin.elapsed_time(end) / 1e3 if cuda else end - begin
        return seconds


METER = Phases
METRICS = tuple(
    Metric(f"{phase}_seconds", phase, SECONDS, optional=True, processes=processes)
    for phase, processes in PHASES.items()
) + tuple(
    Metric(f"{stage}_seconds", f"{stage} time", SECONDS, hold="time", optional=True, processes=("script",))
    for stage in (*STAGES, "update")
)
