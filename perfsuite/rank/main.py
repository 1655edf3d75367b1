"""One rank of one cell: build, prepare, prove the engine, step, write one result.

By hand, without the server:  python -m perfsuite.rank.main FOLDER RANK
where FOLDER contains the cell's job.json. One process per rank; the ranks find each other through FOLDER.
"""

import contextlib
import dataclasses
import faulthandler
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perfsuite.rank.build_model import build_model, prepare, seed_steps
from perfsuite.rank.memory.recorder import record_memory
from perfsuite.rank.meter import Meter, kinds_of_meters, meters_of
from perfsuite.rank.process_group import join
from perfsuite.rank.results import report, sample_of
from perfsuite.rank.session import Session
from perfsuite.rank.steps import kinds_of, step_loop
from perfsuite.records import codec
from perfsuite.records.job import JOB, SCRATCH, Job
from perfsuite.records.progress import ProgressWriter
from perfsuite.records.sample import RankSample
from perfsuite.records.step_kinds import StepKind


def measure(session: Session, phases_seconds: dict[str, float]) -> RankSample:
    """Train the cell and return this rank's measurements."""
    meters = meters_of(session)
    evidence = drive(session, meters, kinds_of(session), phases_seconds)
    sample = sample_of(session, meters, evidence, phases_seconds)
    meters.clear()  # with them goes the trainer, whose memory another one needs
    session.phases.forget_all()
    if session.memory:
        session.memory.release()
    gc.collect()
    alone = dataclasses.replace(session, memory=None)
    with _timed("check", session, phases_seconds):
        for kind in kinds_of_meters(session):
            sample.readings.update(kind(alone).readings_after(sample.readings) if kind.alone else {})
    return sample


def drive(
    session: Session, meters: Sequence[Meter], kinds: Sequence[StepKind], phases_seconds: dict[str, float]
) -> dict[str, str | int]:
    """Build, prepare, prove the engine and step, watched by the meters; for measuring and for tracing.

    ``kinds`` says what each step is for. Returns the evidence that the engine is the named one.
    """
    with _timed("build", session, phases_seconds), session.opened_files.watching():
        model = build_model(session, meters=meters)
    with _timed("prepare", session, phases_seconds), session.opened_files.watching():
        trainer, evidence = prepare(session, model, meters)
        for meter in meters:
            meter.prepared(trainer)

    seed_steps(session)
    phases_seconds["steps"] = -time.perf_counter()
    for _ in step_loop(session, trainer, meters, kinds):
        raise AssertionError("an engine makes its steps itself")
    phases_seconds["steps"] += time.perf_counter()
    trainer.check()
    return evidence


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
        session.phases.report_to(progress)
        with _timed("join", session, phases_seconds):
            join(session, folder)
        session = dataclasses.replace(session, memory=record_memory(session))
        sample = measure(session, phases_seconds)
        progress.mark("result")
        codec.write(folder / f"rank{rank}.json", sample)
        session.departure.close()
        return 0
    except BaseException as error:
        report(error, folder, rank, progress.where, session)
        return 1


@contextlib.contextmanager
def _timed(phase: str, session: Session, phases_seconds: dict[str, float]) -> Any:
    session.mark(phase)
    begin = time.perf_counter()
    yield
    session.synchronize()
    phases_seconds[phase] = time.perf_counter() - begin


if __name__ == "__main__":
    os._exit(run(Path(sys.argv[1]), int(sys.argv[2])))
