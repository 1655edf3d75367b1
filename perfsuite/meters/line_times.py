"""Which lines of the user's a script spends its time in, by phase: samples of some later steps, which nothing else
slows. A thread looks every millisecond where the training thread is.

A script reads its data by a DataLoader, whose phase is known, or by its own code. So what the loop does before the
first line that trains is "batch", and what it does after that is "loss", "update" or "other". The loop is the innermost
function of the user's that is around all samples. An evaluation is what the trained module does without training.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any, NamedTuple

from perfsuite.catalog.definitions import Metric
from perfsuite.meters.coverage import EVALUATION
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.script.saves import SAVE
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.rank.users_lines import UsersLines, is_ours
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import STAGES
from perfsuite.system.units import SECONDS

INTERVAL, SWITCH = 0.001, 0.0001  # seconds
MOST_FRAMES = 12
MICROSECOND = 1e-6
TRAINS = ("forward", "backward", "optimizer")
BATCH, OTHER = "batch", "other"
LOSS, UPDATE = "loss", "update"  # other code inside of a step: after its last forward, or after its last backward
OTHERS = (OTHER, LOSS, UPDATE)
AFTER = {"forward": LOSS, "backward": UPDATE}
NAMED = (SAVE, *STAGES)


class SampledFrame(NamedTuple):
    """A frame of the user's. ``is_called``: by another one of his, with nothing of a library in between."""

    code: CodeType
    line: int
    is_called: bool


RunningLine = tuple[CodeType, int | None]
Stack = tuple[SampledFrame, ...]  # the outermost first


class LineTimes(Meter):
    """Samples from the first later step on."""

    processes = ("script",)
    order = Order.WITHIN_CLOCK
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.users = UsersLines()
        self.seconds: dict[tuple[str, Stack], float] = defaultdict(float)
        self.phase, self.thread = OTHER, 0
        self.other = OTHER  # what other code is here
        self.ended = threading.Event()

    def _mark(self, phase: str) -> None:
        watched = self.trainer.watched
        stage = self.session.phases.phase if self.session.phases.phase in NAMED else phase
        if phase in (*TRAINS, "data"):
            self.other = AFTER.get(phase, OTHER)
        elif stage == OTHER:
            stage = self.other
        self.phase = EVALUATION if watched.only_evaluates else stage

    def readings(self) -> dict[str, Reading]:
        return {"line_seconds": Reading(value=0.0)}

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step == 0:
            self.thread = threading.get_ident()
            self.session.phases.listen(self._mark)
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        """Python code that calls no operator gives way to another thread after the switch interval alone."""
        usual, before = sys.getswitchinterval(), time.perf_counter()
        sys.setswitchinterval(SWITCH)
        while not self.ended.wait(INTERVAL):
            phase, running = self.phase, running_lines(self.thread)
            now = time.perf_counter()
            if not self._is_inside_ours(running):
                self.seconds[phase, self._users_part(running)] += now - before
            before = now
        sys.setswitchinterval(usual)

    def _users_part(self, running: Sequence[RunningLine]) -> Stack:
        places, last = list[SampledFrame](), 0
        for number, (code, line) in enumerate(running):
            if self.users.file(code.co_filename):
                if places and number != last + 1:
                    places[-1] = places[-1]._replace(is_called=False)
                places.append(SampledFrame(code, line or code.co_firstlineno, True))
                last = number
        return tuple(reversed(places[:MOST_FRAMES]))

    def _is_inside_ours(self, running: Sequence[RunningLine]) -> bool:
        """Whether perfsuite looks at something, in a call of the user's."""
        files = itertools.takewhile(lambda file: not self.users.file(file), (code.co_filename for code, _ in running))
        return any(map(is_ours, files))

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        self.ended.set()
        sampled = by_place(dict(self.seconds))
        phases, lines = defaultdict[str, float](float), dict[str, Counter[str]]()
        for (phase, stack), seconds in sampled.items():
            phases[phase] += seconds
            if stack:
                line = self.users.line(stack[-1].code, stack[-1].line)
                lines.setdefault(phase, Counter())[line] += round(seconds / MICROSECOND)
        found = {phase: dict(lines[phase]) for phase in lines}
        return {"line_seconds": Reading(value=sum(phases.values()), phases=dict(phases), lines=found)}


def running_lines(thread: int) -> list[RunningLine]:
    """What a thread runs, from the innermost frame on. Whoever holds a frame holds its tensors, also after its function
    has returned. So all frames are read in one call, in which no other thread runs.
    """
    frame = map(methodcaller("get", thread), iter(sys._current_frames, None))
    frames = itertools.accumulate(itertools.chain(itertools.islice(frame, 1), itertools.repeat("f_back")), getattr)
    running = list[RunningLine]()
    with contextlib.suppress(AttributeError):  # beyond the outermost there is None
        running.extend(map(attrgetter("f_code", "f_lineno"), frames))
    return running


def by_place(samples: Mapping[tuple[str, Stack], float]) -> dict[tuple[str, Stack], float]:
    """The samples with what the loop does before it trains as BATCH, and what belongs to an evaluation as that."""
    loop = _loop([stack for phase, stack in samples if stack and phase in (*TRAINS, "data", *OTHERS)])
    training = [stack for phase, stack in samples if phase in TRAINS and len(stack) > loop >= 0]
    first = min((stack[loop].line for stack in training), default=0)
    inner = {place.code for stack in training for place in stack[loop + 1 :]}
    evaluating = {place.code for phase, stack in samples if phase == EVALUATION for place in stack[loop + 1 :]} - inner
    found: dict[tuple[str, Stack], float] = defaultdict(float)
    for (phase, stack), seconds in samples.items():
        if phase == EVALUATION:  # of the model's own lines, none says that it evaluates
            calls = next((at for at, place in enumerate(stack) if at > loop and place.code in inner), len(stack))
            stack = stack[:calls]
        if phase in OTHERS and len(stack) > loop >= 0 and first:
            rest, is_argument = stack[loop + 1 :], phase != LOSS and stack[loop].line == first
            if any(place.code in evaluating for place in rest):
                phase = EVALUATION
            elif stack[loop].line < first or (is_argument and _is_argument(rest, inner)):
                phase = BATCH
        found[phase, stack] += seconds
    return dict(found)


def _is_argument(rest: Stack, inner: Iterable[CodeType]) -> bool:
    """Whether the first line that trains calls it itself, as in ``step(model, get_batch())``, and it trains nothing."""
    return bool(rest) and rest[0].is_called and rest[0].code not in inner


def _loop(stacks: Iterable[Stack]) -> int:
    """The depth of the innermost frame that is in all of them; -1 if there is none."""
    stacks, depth = list(stacks), -1
    while stacks and all(len(stack) > depth + 1 for stack in stacks):
        if len({stack[depth + 1].code for stack in stacks}) > 1:
            break
        depth += 1
    return depth


METER = LineTimes
METRICS = (Metric("line_seconds", "time by line, sampled", SECONDS, optional=True),)
