"""Which share of a script's loop, and of its whole run, its median step explains, and where the rest is.

The loop begins with the first phase, and its first iteration may have more than a step: a rollout of which many updates
learn, the first compilation. Later steps may be rarer or longer: they evaluate, or save. Of the loop's share, steps
that perfsuite itself slows are left out. The whole run is that of the process until it is ended.
"""

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.script import boot
from perfsuite.rank.script.saves import SAVE
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import STAGES
from perfsuite.system.units import RATIO

PLAIN = (StepKind.WARMUP, StepKind.TIMED)  # the kinds of steps that are as long as the script makes them
FIRST, LONGER = "the first iteration", "longer steps"
EVALUATION = "evaluation"  # forwards in evaluation mode
STAGED = (EVALUATION, SAVE, *STAGES)  # what a longer step is named by
PROCESS = {"python": "start of Python", "import": "imports", "setup": "set-up of data and model"}
AFTER, OWN = "after the last step", "perfsuite itself"


class Coverage(Meter):
    """Times each plain step by its own clock, outside of all other meters."""

    processes = ("script",)
    order = Order.WHOLE
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.made_at = time.perf_counter()
        self.seconds: list[float] = []
        self.timed: list[float] = []
        self.all: list[float] = []  # of each step, and whether perfsuite has slowed it
        self.slowed: list[bool] = []
        self.staged: dict[str, list[float]] = {stage: [] for stage in STAGED}  # seconds of each step
        self.seconds_of = dict.fromkeys(STAGED, 0.0)  # of this step
        self.stage, self.stage_begun, self.last_ended = "", 0.0, 0.0

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        self.session.phases.listen(self._mark)

    def _mark(self, phase: str) -> None:
        now = time.perf_counter()
        if self.stage:
            self.seconds_of[self.stage] += now - self.stage_begun
        named = EVALUATION if self.trainer.watched.evaluates else self.session.phases.phase
        self.stage, self.stage_begun = named if named in STAGED else "", now

    def _made(self, seconds: float, slowed: bool) -> None:
        self.all.append(seconds)
        self.slowed.append(slowed)
        for stage, times in self.staged.items():
            times.append(self.seconds_of[stage])
            self.seconds_of[stage] = 0.0

    @contextlib.contextmanager
    def step(self, kind: StepKind) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        self._made(seconds, slowed=kind not in (*PLAIN, StepKind.UNFENCED))
        if kind in PLAIN:
            self.seconds.append(seconds)
        if kind == StepKind.TIMED:
            self.timed.append(seconds)

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step:
            self._made(seconds, slowed=False)
        else:
            self.session.phases.listen(self._mark)
        self.last_ended = time.perf_counter()

    def readings(self) -> dict[str, Reading]:
        first, *others = self.trainer.first_seconds
        typical, period = statistics.median(self.timed), self.trainer.period
        whole = first + sum(others) + sum(self.seconds)
        explained = min(whole, typical * ((1 + len(others)) / period + len(self.seconds)))
        beyond = max(0.0, first - typical / period)
        rest = {FIRST: min(beyond, whole - explained), LONGER: max(0.0, whole - explained - beyond)}
        shares = {name: seconds / whole for name, seconds in rest.items()}
        return {"covered_share": Reading(value=explained / whole, phases=shares), **self.later_readings({})}

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Of the wall time of this process, with all steps so far."""
        typical, rest = statistics.median(self.timed), defaultdict[str, float](float)
        inside, by_iteration = 0.0, typical / self.trainer.period
        for seconds in self.trainer.first_seconds:
            inside += min(seconds, by_iteration)
            rest[FIRST] += max(0.0, seconds - by_iteration)
        for number, seconds in enumerate(list(self.all)):
            inside += min(seconds, typical)
            beyond = 0.0 if self.slowed[number] else max(0.0, seconds - typical)
            for stage, times in self.staged.items():
                rest[stage] += min(beyond, times[number])
                beyond -= min(beyond, times[number])
            rest[LONGER] += beyond
        rest[AFTER] = time.perf_counter() - self.last_ended if self.last_ended else 0.0
        started = boot.started
        if started and started.is_done:
            rest.update({title: started.seconds[name] for name, title in PROCESS.items()})
            whole = started.age()
        else:  # it was forked
            whole = time.perf_counter() - self.made_at
        whole = max(whole, inside + sum(rest.values()))
        rest[OWN] = whole - inside - sum(rest.values())
        shares = {name: seconds / whole for name, seconds in rest.items() if seconds}
        return {"steps_share": Reading(value=inside / whole, phases=shares)}


METER = Coverage
METRICS = (
    Metric("covered_share", "of the loop's time in median steps", RATIO, fold="min", worse="lower", optional=True),
    Metric("steps_share", "of the wall time in median steps", RATIO, fold="min", worse="lower", optional=True),
)
