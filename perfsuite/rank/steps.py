"""The steps of a rank, of a cell and of a script alike: what each is for, and what happens around it."""

import contextlib
import itertools
import statistics
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence

from perfsuite.errors import RankError
from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.rank.turns import align, turns_of
from perfsuite.records.step_kinds import (
    MOST_OVERFLOWS,
    TRACED_STEPS,
    StepKind,
    block_size,
    last_kinds,
    warmup_of_script,
)

EVALUATED_BATCHES = 2
FIRST_EVALUATED = 10**9  # no training step draws the samples from here on


def kinds_of(session: Session) -> list[StepKind]:
    """The kind of each step of a measurement."""
    job, process = session.job, session.strategy.engine.process
    warmup = warmup_of_script(job.warmup) if session.strategy.engine.own else job.warmup
    compiling = [StepKind.COMPILING] * (session.compiles and job.device != "cpu")
    traced = 1 if job.times_only else TRACED_STEPS  # a first step in which fp16 may overflow is made again
    begin = [*compiling, *[StepKind.TRACED] * traced, *[StepKind.WARMUP] * warmup]
    if job.traces:
        return [*begin, StepKind.PROFILED]
    epoch = [StepKind.TIMED] * job.steps + [StepKind.EVALUATION] * (session.recipe.epochs > 1)
    last = last_kinds(job.steps, process, job.device, job.capacity_bytes is not None, job.unfenced, job.long)
    if job.times_only:
        last = [kind for kind in last if kind == StepKind.UNFENCED and job.unfenced]
    return [*begin, *epoch * session.recipe.epochs, *last]


def step_loop(
    session: Session, trainer: Trainer, meters: Sequence[Meter], kinds: Iterable[StepKind]
) -> Generator[None, bool, None]:
    """Make the steps of these kinds, watched by the meters.

    An engine makes each step itself, so the generator never yields. A script makes its own: each ``yield`` waits until
    it has made one, and is sent whether its update was skipped (``Trainer.make_steps``).
    """
    take_turn = turns_of(session)
    numbers, queue = itertools.count(), StepQueue(kinds)
    for kind in queue:
        take_turn(kind)
        if kind == StepKind.EVALUATION:
            _evaluate(session, trainer, meters)
            continue
        trainer.reads_norm = kind in trainer.norm_kinds
        if trainer.batch_in_step:
            align(session)  # otherwise a fast rank's step would contain the slow rank's previous step
        size = block_size(session.job.steps, session.job.unfenced) if kind == StepKind.UNFENCED else 1
        batches = [_feed(session, trainer, meters, kind, number) for number in itertools.islice(numbers, size)]
        if not trainer.batch_in_step:
            align(session)
        with contextlib.ExitStack() as around:
            for meter in meters:
                around.enter_context(meter.step(kind))
            outcomes = yield from trainer.make_steps(batches)
        session.garbage.made()
        outcomes = [trainer.finished(outcome) for outcome in outcomes]
        for outcome in outcomes:
            for meter in meters:
                meter.stepped(kind, outcome)
        queue.made(kind, outcomes[-1])


class StepQueue:
    """The kinds of the steps that are to be made. A traced step that fp16 skips is made again: it has no optimizer
    state.
    """

    def __init__(self, kinds: Iterable[StepKind]) -> None:
        self._kinds, self._overflows = deque(kinds), 0

    def __iter__(self) -> Iterator[StepKind]:
        while self._kinds:
            yield self._kinds.popleft()

    def made(self, kind: StepKind, outcome: StepOutcome) -> None:
        """A step is made. Raises RankError if too many were skipped."""
        if kind == StepKind.TRACED and outcome.skipped:
            self._kinds.appendleft(kind)
            self._overflows += 1
            if self._overflows == MOST_OVERFLOWS:
                raise RankError(f"fp16 overflowed in {self._overflows} steps, so there are too few to record.")


def _feed(session: Session, trainer: Trainer, meters: Iterable[Meter], kind: StepKind, number: int) -> list[MicroBatch]:
    """Make the batch of a step."""
    with contextlib.ExitStack() as around:
        for meter in meters:
            around.enter_context(meter.feed(kind))
        session.mark("compile" if kind == StepKind.COMPILING else "batch")
        batch = trainer.batch(number)
    if not trainer.batch_in_step:  # else it is made within the step
        session.garbage.made()
    return batch


def _evaluate(session: Session, trainer: Trainer, meters: Iterable[Meter]) -> None:
    """The end of an epoch: always the same batches, like a validation set."""
    losses = []
    for number in range(EVALUATED_BATCHES):
        session.mark("evaluation")
        batch = make_batch(session, FIRST_EVALUATED + number)
        losses.append(float(trainer.evaluate(batch)))
        del batch
    session.garbage.made()
    for meter in meters:
        meter.evaluated(statistics.fmean(losses))
