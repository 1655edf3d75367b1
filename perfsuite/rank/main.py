"""One rank of one cell: build, prepare, prove the engine, step, write one result.

By hand, without the server:  python -m perfsuite.rank.main FOLDER RANK
where FOLDER contains the cell's job.json. One process per rank; the ranks find each other through FOLDER.
"""

import contextlib
import faulthandler
import gc
import itertools
import os
import signal
import statistics
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from perfsuite.errors import RankError, Unsupported
from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.build_model import build_model, prepare, seed_steps
from perfsuite.rank.compat import lacking
from perfsuite.rank.flags import flags
from perfsuite.rank.installed import installed, reachable
from perfsuite.rank.loaded import own_files, own_libraries
from perfsuite.rank.memory.anatomy import CATEGORIES, curve, whole_steps
from perfsuite.rank.meter import Meter
from perfsuite.rank.process_group import join
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.rank.turns import align, turns_of
from perfsuite.records import codec
from perfsuite.records.curves import POINTS, pack
from perfsuite.records.failure import Failure, FailureKind
from perfsuite.records.installed import Installed
from perfsuite.records.job import JOB, SCRATCH, Job
from perfsuite.records.progress import ProgressWriter
from perfsuite.records.sample import RankSample
from perfsuite.records.step_kinds import (
    MOST_OVERFLOWS,
    READS_NORM,
    TRACED_STEPS,
    StepKind,
    block_size,
    last_kinds,
    warmup_of_script,
)

EVALUATED_BATCHES = 2
FIRST_EVALUATED = 10**9  # no training step draws the samples from here on
T = TypeVar("T")
OUT_OF_MEMORY = (
    *("DefaultCPUAllocator: can't allocate", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory"),
    "std::bad_alloc",  # C++'s, for what another library allocates
    "OutOfMemoryError",  # torch's, which need not be there to report a failure
)


def measure(session: Session, phases_seconds: dict[str, float]) -> RankSample:
    """Train the cell and return this rank's measurements."""
    progress = list(session.listeners)
    meters = meters_of(session)
    evidence = drive(session, meters, kinds_of(session), phases_seconds)
    sample = sample_of(session, meters, evidence, phases_seconds)
    meters.clear()  # with them goes the trainer, whose memory another one needs
    session.listeners[:], session.memory = progress, None
    gc.collect()
    with _timed("check", session, phases_seconds):
        for kind in kinds_of_meters(session):
            sample.readings.update(kind(session).readings() if kind.alone else {})
    return sample


def meters_of(session: Session, made: Sequence[Meter] = ()) -> list[Meter]:
    """The meters that watch the cell's steps, the outermost first. Those that are already ``made`` are kept."""
    ready = {type(meter): meter for meter in made}
    kinds = [kind for kind in kinds_of_meters(session) if not kind.alone]
    return sorted((ready.get(kind) or kind(session) for kind in kinds), key=lambda meter: meter.order)


def kinds_of_meters(session: Session) -> list[type[Meter]]:
    """Those for the cell's process and its launch, in no order."""
    modules, job = session.catalog.modules("metric"), session.job
    needed = [one for one in modules if not job.times_only or any(metric.is_timed for metric in one.METRICS)]
    kinds: list[type[Meter]] = [module.METER for module in needed]
    process, launch = session.strategy.engine.process, "traced" if job.traces else "measured"
    return [kind for kind in kinds if process in kind.processes and launch in kind.launches]


def sample_of(
    session: Session, meters: Sequence[Meter], evidence: dict[str, str | int], phases_seconds: dict[str, float]
) -> RankSample:
    """What the meters read, when all steps are made."""
    readings = {name: reading for meter in meters for name, reading in meter.readings().items()}
    session.undone.close()  # the flags are to be the user's
    in_steps = _evidence(lambda: reachable(session.called, session.strategy.engine.own), frozenset[str]())
    return RankSample(
        rank=session.rank,
        readings=readings,
        engine=evidence,
        versions=versions(session),
        flags=flags(session.job.device, session.world_size, in_steps),
        asked=session.asked.digests(),
        phases_seconds=phases_seconds,
        files=own_files(),
        opened=[*session.opened.files, *own_libraries()],
        installed=_evidence(lambda: installed(in_steps, session.packages), Installed()),
        memory_curve=memory_curve(session),
        uncounted={name: reason for meter in meters for name, reason in meter.uncounted.items()},
    )


def drive(
    session: Session, meters: Sequence[Meter], kinds: Sequence[StepKind], phases_seconds: dict[str, float]
) -> dict[str, str | int]:
    """Build, prepare, prove the engine and step, watched by the meters; for measuring and for tracing.

    ``kinds`` says what each step is for.
    """
    with _timed("build", session, phases_seconds), session.opened.watching():
        model = build_model(session)
    with _timed("prepare", session, phases_seconds), session.opened.watching():
        trainer, evidence = prepare(session, model, meters)
        for meter in meters:
            meter.prepared(trainer)

    seed_steps(session)
    take_turn = turns_of(session)
    phases_seconds["steps"] = -time.perf_counter()
    numbers, waiting = itertools.count(), StepQueue(kinds)
    for kind in waiting:
        take_turn(kind)
        if kind == StepKind.EVALUATION:
            _evaluate(session, trainer, meters)
            continue
        size = block_size(session.job.steps, session.job.unfenced) if kind == StepKind.UNFENCED else 1
        steps = itertools.islice(numbers, size)
        batches = [_feed(session, trainer, meters, kind, number) for number in steps]
        trainer.reads_norm = kind in READS_NORM
        align(session)  # otherwise a fast rank's step would contain the slow rank's previous step
        with contextlib.ExitStack() as around:
            for meter in meters:
                around.enter_context(meter.step(kind))
            outcomes = [trainer.step(batch) for batch in batches]
        outcomes = [trainer.finished(outcome) for outcome in outcomes]
        for outcome in outcomes:
            for meter in meters:
                meter.stepped(kind, outcome)
        waiting.made(kind, outcomes[-1])
    phases_seconds["steps"] += time.perf_counter()
    trainer.check()
    return evidence


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
    session.mark("compile" if kind == StepKind.COMPILING else "batch")
    with contextlib.ExitStack() as around:
        for meter in meters:
            around.enter_context(meter.feed(kind))
        return trainer.batch(number)


def memory_curve(session: Session) -> dict[str, str]:
    """Live memory over the last recorded step, in the format of records/curves.py; nothing without steps."""
    memory = session.memory
    if memory is None:
        return {}
    events, own = whole_steps(memory.events, memory.marks), session.strategy.engine.own
    return pack(curve(events, memory.marks, POINTS, own), CATEGORIES)


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


def _evaluate(session: Session, trainer: Trainer, meters: Iterable[Meter]) -> None:
    """The end of an epoch: always the same batches, like a validation set."""
    losses = []
    for number in range(EVALUATED_BATCHES):
        session.mark("evaluation")
        batch = make_batch(session, FIRST_EVALUATED + number)
        losses.append(float(trainer.evaluate(batch)))
        del batch
    for meter in meters:
        meter.evaluated(statistics.fmean(losses))


def run(folder: Path, rank: int, warm_up: Callable[[], None] | None = None) -> int:
    """Run one rank to its end and leave result or failure in the folder. Returns the exit status. ``warm_up`` does the
    preparation that was not done before the ranks were forked.
    """
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the watchdog asks a hanging rank for its stack
    progress = ProgressWriter(folder / f"rank{rank}.progress")
    session = None
    try:
        phases_seconds: dict[str, float] = {}
        if warm_up:
            progress.mark("import")
            warm_up()
        job = codec.read(folder / JOB, Job)
        session = Session.open(job, rank, folder / SCRATCH)
        session.listeners.append(progress.mark)
        session.waits = progress.wait
        with _timed("join", session, phases_seconds):
            join(session, folder)
        sample = measure(session, phases_seconds)
        progress.mark("result")
        codec.write(folder / f"rank{rank}.json", sample)
        session.left.close()
        return 0
    except BaseException as error:
        report(error, folder, rank, progress.where, session)
        return 1


def report(error: BaseException, folder: Path, rank: int, where: str, session: Session | None) -> None:
    """Write the reason why this rank ends to a file; the first rank to do so is the culprit."""
    if isinstance(error, RankError):
        print(error, file=sys.stderr)  # its message is complete
    else:
        traceback.print_exception(error)
    error = _evidence(lambda: lacking(error), None) or error
    text = f"{type(error).__name__} {where}: {error}" if not isinstance(error, RankError) else str(error)
    out_of_memory = is_out_of_memory(error)
    kind: FailureKind = "oom" if out_of_memory else "unsupported" if isinstance(error, Unsupported) else "raised"
    message = text.split("\nException raised")[0].strip()  # behind it torch prints its C++ stack
    memory = session.memory if session and out_of_memory else None
    parts: dict[str, int] = _evidence(memory.at_refusal, {}) if memory else {}
    if session:
        _evidence(session.undone.close, None)  # the flags are to be the user's
    failure = Failure(
        kind=kind,
        rank=rank,
        message=message,
        missing_bytes=_evidence(lambda: memory.source.missing_bytes, None) if memory else None,
        parts=parts,
        versions=versions(session),
        flags=flags(session.job.device, session.world_size) if session else {},
        installed=_evidence(installed, Installed()),
        add=error.add if isinstance(error, Unsupported) else (),
        world_size=getattr(error, "world_size", None),
        timed_steps=getattr(error, "timed_steps", None),
    )
    codec.write(folder / f"rank{rank}.failure.json", failure)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device's memory or the host's was not enough."""
    text = f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or any(sign in text for sign in OUT_OF_MEMORY)


def _evidence(ask: Callable[[], T], otherwise: T) -> T:
    """What is only evidence of a failure: an exception here must not hide the failure itself."""
    try:
        return ask()
    except Exception:
        traceback.print_exc()
        return otherwise


@contextlib.contextmanager
def _timed(phase: str, session: Session, phases_seconds: dict[str, float]) -> Any:
    session.mark(phase)
    begin = time.perf_counter()
    yield
    session.synchronize()
    phases_seconds[phase] = time.perf_counter() - begin


def versions(session: Session | None) -> dict[str, str]:
    """The versions of the libraries and of what strategy and model name, and the set of the CPU's kernels. It raises
    nothing: a failure names them, too.
    """
    kernels = (session.job.kernels if session else "") or _evidence(_cpu_capability, "unknown")
    packages = (*session.strategy.packages, *session.job.model.packages) if session else ()
    versions = {"python": sys.version.split()[0], "cpu kernels": kernels}
    for name in dict.fromkeys(("torch", "transformers", "accelerate", "deepspeed", *packages)):
        with contextlib.suppress(Exception):  # not installed, or its metadata are broken
            versions[name] = metadata.version(name)
    return versions


def _cpu_capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability().lower()


if __name__ == "__main__":
    os._exit(run(Path(sys.argv[1]), int(sys.argv[2])))
