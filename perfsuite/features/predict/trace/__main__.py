"""Traces ranks, each in a process of its own:

    python -m perfsuite.features.predict.trace PROCESSES

Every line of the standard input is a round: ``JOB.json OUT.json JOB.json OUT.json …``, tab-separated. A JOB is a
TraceJob; its OUT becomes a Trace, or a Failure if there is none. The libraries are imported once, and every trace runs
in a fork, so its changes to them end with it. At most PROCESSES run at once. The number of every job of a round that
has ended, from 0 on, is a line of the standard output.
"""

import contextlib
import dataclasses
import gc
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TextIO

import msgspec

from perfsuite.catalog.processes import PROCESSES
from perfsuite.errors import RankError, Unsupported
from perfsuite.features.predict.trace_records import Trace, TraceJob
from perfsuite.rank.compat import lacking
from perfsuite.records import codec
from perfsuite.records.failure import Failure, FailureKind
from perfsuite.system.processes import end_with_parent

LEARNED = ".learned"  # beside the trace of a fork: answers to operators
MANY = 6  # jobs from which on the first is worth the wait of all others


def run(job: TraceJob, out: Path) -> None:
    """Trace one rank and leave the Trace or the Failure."""
    try:
        codec.write_bytes(out, codec.encode_line(_traced(job)).encode())
    except Exception as caught:
        if not isinstance(caught, RankError):
            traceback.print_exc()
        error = lacking(caught) or caught
        kind: FailureKind = "unsupported" if isinstance(error, Unsupported) else "raised"
        text = str(error) if isinstance(error, RankError) else f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(caught.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        codec.write(out, Failure(kind=kind, rank=job.rank, message=text.strip().split("\n\n")[0], tail=where))


def _traced(job: TraceJob) -> Trace:
    """The trace of the rank, or of the program that all ranks run."""
    from perfsuite.rank.session import Session

    # Fake tensors are on the CPU, and so are the engines' requests: overrides.py makes it act like CUDA.
    session = Session.open(msgspec.structs.replace(job.job, device="cpu", capacity_bytes=None), job.rank)
    # Padding decides whether there are masks, and so which attention kernel runs.
    recipe = dataclasses.replace(session.recipe, padded=job.padded and session.recipe.padded)
    session = dataclasses.replace(session, recipe=recipe)
    if PROCESSES[session.strategy.engine.process].compiled:
        from perfsuite.features.predict.trace.ahead import compile_ahead

        return compile_ahead(job, session)
    from perfsuite.features.predict.trace.fake_rank import trace

    return trace(job, session)


def preload(jobs: list[TraceJob]) -> None:
    """Import what the forks share. A failed import is reported by the trace that needs the module.

    peft makes tensors when it is imported. They are in the memory of a rank on a CPU, so there its trace imports it.
    """
    for job in jobs:
        with contextlib.suppress(Exception):
            _import(job, libraries=all(one.job.device != "cpu" for one in jobs))


def _import(job: TraceJob, libraries: bool) -> None:
    import torch
    import transformers

    from perfsuite.rank.session import Session

    torch.set_num_threads(1)
    strategy = Session.open(job.job, job.rank).strategy
    for name in (*strategy.engine.preload, *(name for choice in strategy.choices for name in choice.technique.preload)):
        importlib.import_module(name)
    getattr(transformers, job.job.model.model_class or "T5Config")
    if strategy.engine.prepare:
        strategy.engine.prepare()
    for name in strategy.packages if libraries else ():
        importlib.import_module(name)


def changes_nothing(job: TraceJob) -> bool:
    """Whether a trace leaves its process as it was: one rank, and no code of a user, a technique or a library's engine,
    which may replace functions of torch.
    """
    from perfsuite.rank.session import Session

    if job.job.world_size > 1 or job.job.catalogs or job.job.faults or job.job.model.has_own_code:
        return False
    strategy = Session.open(job.job, job.rank).strategy
    techniques = [choice.technique for choice in strategy.choices]
    plain = strategy.engine.max_ranks == 1 and not strategy.engine.prepare  # one for several wraps the model
    return plain and not any(technique.applies or technique.loop or technique.prepare for technique in techniques)


def learn(job: TraceJob, out: Path) -> None:
    """Trace in this process. What fake tensors learn of its operators, all later forks know: most have the same."""
    import torch.distributed as dist

    run(job, out)
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.enable()


def tell(job: TraceJob, out: Path) -> None:
    """Trace in a fork, and leave what fake tensors have learned of operators for the forks that come later."""
    from perfsuite.features.predict.trace import repeats

    before = repeats.known()
    run(job, out)
    codec.write_bytes(out.with_suffix(LEARNED), repeats.learned(before))


def take(out: Path) -> None:
    """Know what a fork has learned; nothing if it died."""
    from perfsuite.features.predict.trace import repeats

    told = out.with_suffix(LEARNED)
    if told.exists():
        repeats.know(told.read_bytes())
        told.unlink()


def trace_round(paths: list[str], most: int, ended: TextIO) -> None:
    """Fork a process per job, and tell which have ended."""
    pairs = [(Path(paths[i]), Path(paths[i + 1])) for i in range(0, len(paths), 2)]
    jobs = [codec.read(path, TraceJob) for path, _ in pairs]
    preload(jobs)
    plain = (number for number, job in enumerate(jobs) if changes_nothing(job))
    first = next(plain, None) if len(jobs) >= MANY else None
    if first is not None:
        learn(jobs[first], pairs[first][1])
        print(first, file=ended, flush=True)
    gc.collect()
    gc.freeze()  # a fork's collections need not visit what the libraries have made
    running: dict[int, int] = {}

    def wait() -> None:
        number = running.pop(os.wait()[0])
        take(pairs[number][1])
        print(number, file=ended, flush=True)

    for number, (job, (_, out)) in enumerate(zip(jobs, pairs, strict=True)):
        if number == first:
            continue
        if len(running) == most:
            wait()
        pid = os.fork()
        if not pid:
            try:
                end_with_parent()
                tell(job, out)
            finally:
                sys.stderr.flush()
                os._exit(0)  # the interpreter would take seconds to free all fake tensors
        running[pid] = number
    while running:
        wait()


def main() -> None:
    """Trace one round after the other, until there are no more."""
    end_with_parent()
    ended = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes with the errors
    for line in sys.stdin:
        trace_round(line.rstrip("\n").split("\t"), int(sys.argv[1]), ended)


if __name__ == "__main__":
    main()
