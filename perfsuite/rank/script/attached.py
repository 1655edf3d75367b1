"""Attaches to a process of a measured command once it has imported torch. If it trains, it is a rank (script_rank.py).

Its first iterations show how the loop repeats. Then come the steps of a cell, by the same loop and the same meters.
When all are made, some later steps are watched (later.py). Then the rank ends at once, wherever the script is.
"""

import atexit
import contextlib
import dataclasses
import faulthandler
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from perfsuite.errors import RankError
from perfsuite.rank.build_model import seed_script
from perfsuite.rank.memory.recorder import record_memory
from perfsuite.rank.meter import kinds_of_meters
from perfsuite.rank.results import is_out_of_memory, report
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.ending import leave
from perfsuite.rank.script.loaders import Loaders, watch_loaders
from perfsuite.rank.script.loggers import watch_log
from perfsuite.rank.script.on_cuda import begin_with_cuda
from perfsuite.rank.script.outside import outside_of_copy
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.rollouts import Rollouts, watch_generation, watch_trl
from perfsuite.rank.script.saves import WRITE, Saves, watch_saves
from perfsuite.rank.script.script_rank import FirstWatched, ScriptRank
from perfsuite.rank.script.script_trainer import SeenScript
from perfsuite.rank.script.torch_hooks import watch_compiler, watch_deepspeed, watch_fsdp, watch_torch
from perfsuite.rank.script.watched import LETTERS, Watched
from perfsuite.rank.session import Session
from perfsuite.records import codec
from perfsuite.records.job import ATTACHED, JOB, SCRATCH, Job
from perfsuite.records.suspects import STAGES

STDERR = 2  # the descriptor: sys.stderr may be None, or something of the script's
FOLDER = "PERFSUITE_SCRIPT"  # the variable with the folder of the cell
NO_OPTIMIZER = (
    ". It made backward passes, and no step of a torch.optim.Optimizer: if it has an optimizer of its own, call "
    "perfsuite.step() where its step ends."
)
_here: "Attached | None" = None


def step() -> None:
    """What perfsuite.step() calls in a process that is attached."""
    if _here:
        _here.step()


def named(kind: Literal["phase", "part"], name: str) -> contextlib.AbstractContextManager[None]:
    """What perfsuite.phase() and perfsuite.part() return in a process that is attached."""
    return _here.named(kind, name) if _here and _here.watched.is_here else contextlib.nullcontext()


def attach(torch: Any) -> None:
    """Called when torch is imported."""
    global _here
    folder = Path(started_with[FOLDER])
    (folder / ATTACHED.format(pid=os.getpid())).touch()
    faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=False)  # asked for if the process hangs
    _here = Attached(folder, torch)
    _here.watch(torch)
    os.register_at_fork(after_in_child=_here.forked)


def attach_deepspeed(engine: Any) -> None:
    """Called when DeepSpeed's engine is imported."""
    if _here:
        watch_deepspeed(engine, _here.watched)
        watch_saves(engine, _here.seen.saves)
        _proves(engine)


def attach_fsdp(module: Any) -> None:
    """Called when FullyShardedDataParallel is imported."""
    if _here:
        watch_fsdp(module, _here.watched)


def attach_compiler(eval_frame: Any) -> None:
    """Called when torch's compiler is imported."""
    if _here:
        watch_compiler(eval_frame)


def attach_saves(module: Any) -> None:
    """Called when a module that writes checkpoints is imported."""
    if _here:
        watch_saves(module, _here.seen.saves)


def attach_accelerate(accelerator: Any) -> None:
    """Called when Accelerate's Accelerator is imported."""
    attach_saves(accelerator)
    attach_log(accelerator)


def attach_log(module: Any) -> None:
    """Called when a module of a library is imported that logs numbers."""
    if _here:
        watch_log(module, _here.watched.logged)
    _proves(module)


def _proves(module: Any) -> None:
    if _here and _here.proved:
        _here.proved.imported(module)


def attach_generation(utils: Any) -> None:
    """Called when transformers' generate() is imported."""
    if _here:
        watch_generation(utils, _here.seen.rollouts)


def attach_trl(trainers: Any) -> None:
    """Called when a module of trl's trainers is imported."""
    if _here:
        watch_trl(trainers, _here.seen.rollouts)


class Attached:
    """This process. Its memory is recorded from here on, since the script builds its model next."""

    def __init__(self, folder: Path, torch: Any) -> None:
        self.folder = folder
        job = codec.read(folder / JOB, Job)
        self.session = Session.open(job, int(os.environ.get("RANK", "0")), folder / SCRATCH)
        self.reading = self.session.changes.enter_context(contextlib.ExitStack())
        self.reading.enter_context(self.session.opened_files.watching())
        self.watched = Watched(self.session.phases.mark, self.iterated)
        self.seen = SeenScript(
            self.watched,
            Rollouts(self.watched, self.as_stage),
            Saves(self.watched, self.as_stage),
            Loaders(self.watched),
        )
        self.first = FirstWatched()
        self.proved: ProvedScript | None = None
        self.rank: ScriptRank | None = None  # once the first iteration has ended
        self.iteration_begun = 0.0  # 0: by the first phase
        self.begun = time.perf_counter()
        self.process = os.getpid()
        seed_script(job.seed + self.session.rank)
        if job.device == "cpu":
            self._begin()
        else:
            begin_with_cuda(torch, self._begin)
        sys.excepthook = self._failed(sys.excepthook)
        atexit.register(self._ended)

    def watch(self, torch: Any) -> None:
        """Put the hooks into torch."""
        watch_loaders(importlib.import_module("torch.utils.data.dataloader"), self.seen.loaders)
        watch_torch(torch, self.watched)
        for module in [sys.modules[name] for name in WRITE if name in sys.modules]:
            watch_saves(module, self.seen.saves)
        if proving := self.session.job.proves:
            self.proved = ProvedScript(torch, self.watched, proving, self.folder)

    def _begin(self) -> None:
        """Watch the device's memory from here on."""
        with self.watched.away():
            self.session = dataclasses.replace(self.session, memory=record_memory(self.session))
            early = [kind(self.session) for kind in kinds_of_meters(self.session) if kind.early]
        self.first = FirstWatched(str(self.session.device), tuple(early))

    def forked(self) -> None:
        """In a child of this process, which may train: it is another rank then."""
        self.watched.forked()
        self.rank = None

    def iterated(self, skipped: bool) -> None:
        """The script has made an iteration. Nothing that goes wrong here reaches the script: it might catch it."""
        seconds = time.perf_counter() - (self.iteration_begun or self.watched.begun_at)
        try:
            self.seen.saves.stepped()
            self.seen.loaders.iterated()
            self.watched.first.iterated()
            if self.rank is None:
                self.process = os.getpid()
                self.rank = ScriptRank(self.folder, self.session, self.seen, self.proved, self.begun)
                self.reading.close()
                self.rank.check_ranks()
            self.rank.iterated(skipped, seconds, self.first)
        except BaseException as error:
            self._report(error)
            leave(1)
        self.iteration_begun = time.perf_counter()

    def step(self) -> None:
        """The script says itself that a step has ended. From then on, its optimizers do not.

        What they have ended before is forgotten: those iterations do not repeat.
        """
        if self.watched.is_here:
            if self.watched.end_by_hand() and self.rank:
                self.rank.forget_iterations()
            self.watched.note("S")
            self.iterated(False)

    @contextlib.contextmanager
    def named(self, kind: Literal["phase", "part"], name: str) -> Iterator[None]:
        """Inside, the phase or the part has that name. Listeners ask for it when they get a mark."""
        try:
            with self.session.phases.named(kind, str(name)):
                self.watched.resume()
                yield
        finally:
            self.watched.resume()

    def as_stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Inside, a phase that a library has, if the script names none itself."""
        free = self.watched.is_here and self.session.phases.phase in ("", *STAGES)
        return self.named("phase", name) if free else contextlib.nullcontext()

    def _failed(self, before: Callable[..., None]) -> Callable[..., None]:
        def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            rank = self._own_rank
            if rank and rank.later:
                before(kind, error, traceback)
                rank.later.write(ended=True, failed="" if isinstance(error, KeyboardInterrupt) else kind.__name__)
                rank.finish()
            too_large = self.process == os.getpid() and is_out_of_memory(error)  # it may be so for its first step
            hint = outside_of_copy(error, started_with)
            if (rank or too_large) and not isinstance(error, KeyboardInterrupt):
                self._report(RankError(f"{kind.__name__}: {error}.{hint}") if hint else error)
            elif not self.rank:
                hint = hint or (NO_OPTIMIZER if LETTERS["backward"] in self.watched.events else "")
                (self.folder / ATTACHED.format(pid=os.getpid())).write_text(f"{kind.__name__}: {error}{hint}")
            before(kind, error, traceback)

        return hook

    def _ended(self) -> None:
        """The script has ended by itself."""
        if rank := self._own_rank:
            rank.ended()

    @property
    def _own_rank(self) -> ScriptRank | None:
        """This process as a rank; None in one that was forked from it and does not train."""
        return self.rank if self.rank and self.rank.process == os.getpid() else None

    def _report(self, error: BaseException) -> None:
        if self.rank:
            self.rank.report(error)
        else:
            report(error, self.folder, self.session.rank, "at its start", self.session)
