"""Attaches to a process of a measured command once it has imported torch. If it trains, it is a rank.

Its first iterations show how the loop repeats. Then come the steps of a cell, by the same meters: a generator makes
them, and goes on whenever the script has made one. When all are made, some later steps are watched (later.py). Then the
rank ends at once, wherever the script is.
"""

import atexit
import contextlib
import dataclasses
import faulthandler
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from perfsuite.catalog.cell_id import CellId, HardwareName
from perfsuite.errors import RankError
from perfsuite.rank.memory.recorder import record_memory
from perfsuite.rank.meter import Meter, kinds_of_meters, meters_of
from perfsuite.rank.results import is_out_of_memory, report, sample_of
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.family import descendants
from perfsuite.rank.script.later import Later, has_later_steps
from perfsuite.rank.script.loaders import Loaders, watch_loaders
from perfsuite.rank.script.loggers import watch_log
from perfsuite.rank.script.loop import MOST, ScriptLoop, Shared, extras, loop_of
from perfsuite.rank.script.on_cuda import begin_with_cuda, check_device, settle_on
from perfsuite.rank.script.outside import outside_of_copy
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.read_files import read_in
from perfsuite.rank.script.rollouts import Rollouts, watch_generation, watch_trl
from perfsuite.rank.script.saves import WRITE, Saves, watch_saves
from perfsuite.rank.script.script_trainer import ScriptTrainer, active, names_of
from perfsuite.rank.script.watched import LETTERS, Watched, watch_deepspeed, watch_torch
from perfsuite.rank.session import Session
from perfsuite.rank.steps import kinds_of, step_loop
from perfsuite.records import codec
from perfsuite.records.job import ATTACHED, JOB, PID, SCRATCH, Job
from perfsuite.records.progress import ProgressWriter
from perfsuite.records.sample import RankSample
from perfsuite.records.step_kinds import steps_of_script
from perfsuite.records.suspects import STAGES

FOLDER = "PERFSUITE_SCRIPT"  # the variable with the folder of the cell
STDERR = 2  # the descriptor: sys.stderr may be None, or something of the script's
NO_OPTIMIZER = (
    ". It made backward passes, and no step of a torch.optim.Optimizer: if it has an optimizer of its own, call "
    "perfsuite.step() where its step ends."
)
END_SECONDS = 60.0  # for the other ranks to be done, too
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
    _here = Attached(folder, torch)
    watch_loaders(importlib.import_module("torch.utils.data.dataloader"), _here.loaders)
    watch_torch(torch, _here.watched)
    for module in [sys.modules[name] for name in WRITE if name in sys.modules]:
        watch_saves(module, _here.saves)
    if proving := _here.session.job.proves:
        _here.proved = ProvedScript(torch, _here.watched, proving, folder)
    os.register_at_fork(after_in_child=_here.forked)


def attach_deepspeed(engine: Any) -> None:
    """Called when DeepSpeed's engine is imported."""
    if _here:
        watch_deepspeed(engine, _here.watched)
        watch_saves(engine, _here.saves)
        _proves(engine)


def attach_saves(module: Any) -> None:
    """Called when a module that writes checkpoints is imported."""
    if _here:
        watch_saves(module, _here.saves)


def attach_accelerate(accelerator: Any) -> None:
    """Called when Accelerate's Accelerator is imported."""
    attach_saves(accelerator)
    attach_log(accelerator)


def attach_log(module: Any) -> None:
    """Called when a module of a library is imported that logs numbers."""
    if _here:
        watch_log(module, _here.watched.logged)
    _proves(module)


def attach_trainer(trainer: Any) -> None:
    """Called when transformers' Trainer is imported."""
    attach_log(trainer)


def _proves(module: Any) -> None:
    if _here and _here.proved:
        _here.proved.imported(module)


def attach_generation(utils: Any) -> None:
    """Called when transformers' generate() is imported."""
    if _here:
        watch_generation(utils, _here.rollouts)


def attach_trl(trainers: Any) -> None:
    """Called when a module of trl's trainers is imported."""
    if _here:
        watch_trl(trainers, _here.rollouts)


class Unfit(RankError):
    """The script has another world size than its cell, or makes too few steps for it."""

    def __init__(self, text: str, world_size: int | None = None, timed_steps: int | None = None) -> None:
        super().__init__(text)
        self.world_size = world_size
        self.timed_steps = timed_steps


class Attached:
    """This process. Its memory is recorded from here on, since the script builds its model next."""

    def __init__(self, folder: Path, torch: Any) -> None:
        self.folder = folder
        job = codec.read(folder / JOB, Job)
        self.session = Session.open(job, int(os.environ.get("RANK", "0")), folder / SCRATCH)
        self.reading = self.session.changes.enter_context(contextlib.ExitStack())
        self.reading.enter_context(self.session.opened_files.watching())
        self.early: list[Meter] = []
        self.begun_on = ""
        self.watched = Watched(self.session.phases.mark, self.iterated)
        self.rollouts = Rollouts(self.watched, self.as_stage)
        self.saves = Saves(self.watched, self.as_stage)
        self.loaders = Loaders(self.watched)
        self.iterations: list[str] = []
        self.iteration_begun = 0.0  # 0: by the first phase
        self.iteration_seconds: list[float] = []
        self.progress: ProgressWriter | None = None
        self.steps: Generator[None, bool, None] | None = None
        self.shared: Shared | None = None
        self.loop: ScriptLoop | None = None
        self.extras: list[list[str] | None] = []  # of the iterations of this step
        self.plain: list[str] = []  # what each iteration of a step does on this rank, without extras
        self.period = self.count = self.known = 0
        self.by_hand = False  # whether the script says itself where the measured steps end
        self.begun = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.owner = os.getpid()
        self.done = False
        self.proved: ProvedScript | None = None
        self.later: Later | None = None
        _seed(job.seed + self.session.rank)
        if job.device == "cpu":
            self._begin()
        else:
            begin_with_cuda(torch, self._begin)
        sys.excepthook = self._failed(sys.excepthook)
        atexit.register(self._ended)

    def _begin(self) -> None:
        """Watch the device's memory from here on."""
        self.begun_on = str(self.session.device)
        with self.watched.away():
            self.session = dataclasses.replace(self.session, memory=record_memory(self.session))
            self.early = [kind(self.session) for kind in kinds_of_meters(self.session) if kind.early]

    def forked(self) -> None:
        """In a child of this process, which may train: it is another rank then."""
        self.watched.forked()
        self.iterations, self.progress, self.steps, self.shared, self.later = [], None, None, None, None

    def iterated(self, skipped: bool) -> None:
        """The script has made an iteration. Nothing that goes wrong here reaches the script: it might catch it."""
        self.iteration_seconds.append(time.perf_counter() - (self.iteration_begun or self.watched.begun_at))
        try:
            self._iterated(skipped)
        except BaseException as error:
            self._report(error)
            _leave(1)
        self.iteration_begun = time.perf_counter()

    def step(self) -> None:
        """The script says itself that a step has ended. From then on, its optimizers do not.

        What they have ended before is forgotten: those iterations do not repeat.
        """
        if self.watched.is_here:
            if not self.watched.by_hand:
                self.watched.by_hand = True
                self.iterations.clear()
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

    def _iterated(self, skipped: bool) -> None:
        self.saves.stepped()
        self.loaders.iterated()
        self.watched.first.iterated()
        if self.later:
            self._made_later(self.later, skipped)
            return
        if self.progress is None:
            self._join()
        if self.proved:
            if self.proved.iterated(skipped, self.session.rank):
                self._write(sample_of(self.session, (), active(self.watched), self.seconds))
            return
        events, self.watched.events = self.watched.events, ""
        if self.steps is None:
            assert self.shared
            events, waits = self.shared.iteration(events, self.watched.counts and self.watched.unstepped)
            self.iterations.append(events)
            self.watched.forget()
            self.loop = None if waits and len(self.iterations) <= MOST else loop_of(self.iterations)
            if self.loop:
                self.period = self.loop.period
                self._measure()
            elif len(self.iterations) > MOST:
                seen = ", ".join(self.iterations[-3:])
                raise RankError(
                    f"The loop does not repeat: the last of {len(self.iterations)} iterations were {seen} (D data, F "
                    "forward, B backward, O0 the first optimizer, | the next rank). Call perfsuite.step() where a "
                    "step ends."
                )
            else:
                self.session.mark("batch")
                self.session.mark("other")
            return
        self.count += 1
        if self.watched.by_hand != self.by_hand:
            raise RankError(
                "perfsuite.step() was called for the first time when steps of an optimizer were measured already. Call "
                "it once before the first optimizer step, too."
            )
        if self.watched.counts and len(self.watched.optimizers) > self.known:
            late = type(list(self.watched.optimizers.values())[-1]).__name__
            raise RankError(
                f"An optimizer, {late}, has stepped for the first time after the loop had repeated, so a step of it is "
                "longer than was seen. Call perfsuite.step() once before the first optimizer step, and where each step "
                "that counts ends."
            )
        self.extras.append(extras(events, self.plain[(self.count - 1) % self.period]))
        if self.count % self.period == 0:
            self._step(skipped)

    def _join(self) -> None:
        """The first iteration: only now is the process group known, and that this process is a rank."""
        import torch.distributed as dist

        joined = dist.is_available() and dist.is_initialized()
        self.owner = os.getpid()
        rank = dist.get_rank() if joined else 0
        ranks = dist.get_world_size() if joined else 1
        self.progress = ProgressWriter(self.folder / f"rank{rank}.progress")
        self.progress.mark("batch")  # of the step that has ended
        self.session = dataclasses.replace(self.session, rank=rank)
        self.session.phases.report_to(self.progress)
        self.shared = Shared(self.folder, rank, self.session.world_size, self.progress.wait)
        self.reading.close()
        faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=False)  # asked for if the rank hangs
        self.seconds["start"] = time.perf_counter() - self.begun
        part = self.folder / f"{PID.format(rank=rank)}.part"
        part.write_text(f"{os.getpid()} {socket.gethostname()}")
        part.rename(self.folder / PID.format(rank=rank))
        if ranks != self.session.world_size:
            device = HardwareName.parse(CellId.parse(self.session.job.cell).hardware).kind
            # The first to report ends the others, which may be the cell's.
            self.session = dataclasses.replace(self.session, rank=rank % self.session.world_size)
            raise Unfit(
                f"The script trains on {ranks} {'rank' if ranks == 1 else 'ranks'}, but its cell has "
                f"{self.session.world_size}: its hardware is {HardwareName(device, ranks)}.",
                world_size=ranks,
            )

    def _measure(self) -> None:
        """The loop is known: from the next iteration on, steps are measured."""
        import torch

        check_device(self.session, self.watched.devices, self.begun_on)
        if self.session.job.device == "cuda":
            settle_on(torch, self.begun_on)
        assert self.loop
        self.plain = [one.split("|")[self.session.rank] for one in self.loop.plain]
        self.known, self.by_hand = len(self.watched.optimizers), self.watched.by_hand
        models = self.watched.models
        model = models[0] if len(models) == 1 else torch.nn.ModuleDict(names_of(models))
        with torch.random.fork_rng(devices=[]):  # the script's numbers stay as they are
            self.meters = meters_of(self.session, self.early)
            self.trainer = ScriptTrainer(self.session, model, self.watched, self.rollouts, self.saves, self.loaders)
            self.trainer.period, self.trainer.first_seconds = self.period, list(self.iteration_seconds)
            for meter in self.meters:
                meter.prepared(self.trainer)
        kinds = kinds_of(self.session)
        self.seconds["steps"] = -time.perf_counter()
        self.steps = step_loop(self.session, self.trainer, self.meters, kinds)
        next(self.steps)

    def _step(self, skipped: bool) -> None:
        assert self.steps
        self.trainer.extras, self.extras = self.extras, []
        try:
            self.steps.send(skipped)
        except StopIteration:
            self._finish()

    def _finish(self) -> None:
        """All measured steps are made. What the script does from here on is watched for a while."""
        self.seconds["steps"] += time.perf_counter()
        sample = sample_of(self.session, self.meters, self.trainer.check(), self.seconds)
        if not has_later_steps(self.session.job):
            self._write(sample)
            return
        assert self.progress
        self.session.phases.forget_all()
        self.trainer.reads_norm = False
        self.later = Later(self.folder, self._complete(sample), self.meters, self._done)
        self.later.begin(time.perf_counter() - self.begun)

    def _made_later(self, later: Later, skipped: bool) -> None:
        self.watched.events = ""
        self.count += 1
        if self.count % self.period == 0:
            later.stepped(self.trainer.outcome(skipped))

    def _complete(self, sample: RankSample) -> RankSample:
        """With the files of the user, of which the script has copies."""
        return msgspec.structs.replace(
            sample,
            files=[self._original(file) for file in sample.files],
            opened=[*map(self._original, sample.opened), *self._read()],
            observed=self.proved.observed() if self.proved else {},
        )

    def _write(self, sample: RankSample) -> None:
        codec.write(self.folder / f"rank{self.session.rank}.json", self._complete(sample))
        self._done()

    def _done(self) -> None:
        """This rank's sample is written. The others may still need this one."""
        self.done = True
        _wait_for([self.folder / f"rank{one}.json" for one in range(self.session.world_size)])
        _leave(0)

    def _read(self) -> list[str]:
        """The user's files that any process of the script has read, once for all ranks."""
        return read_in(*map(Path, _folders())) if self.session.rank == 0 else []

    def _original(self, file: str) -> str:
        """The user's file, of which the script has a copy."""
        copy, original = _folders()
        if file.startswith(f"{copy}/"):
            return original + file.removeprefix(copy)
        return file.removeprefix(root) if file.startswith(f"{(root := started_with['PERFSUITE_ROOT'])}/") else file

    def _failed(self, before: Any) -> Any:
        def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            if self.later and self._is_rank():
                before(kind, error, traceback)
                self.later.write(ended=True, failed="" if isinstance(error, KeyboardInterrupt) else kind.__name__)
                self._done()
            too_large = self.owner == os.getpid() and is_out_of_memory(error)  # it may be so for its first step
            hint = outside_of_copy(error, started_with)
            if (self._is_rank() or too_large) and not isinstance(error, KeyboardInterrupt):
                self._report(RankError(f"{kind.__name__}: {error}.{hint}") if hint else error)
            elif not self.progress:
                hint = hint or (NO_OPTIMIZER if LETTERS["backward"] in self.watched.events else "")
                (self.folder / ATTACHED.format(pid=os.getpid())).write_text(f"{kind.__name__}: {error}{hint}")
            before(kind, error, traceback)

        return hook

    def _ended(self) -> None:
        """The script has ended by itself."""
        if self.later and self._is_rank():
            self.later.write(ended=True)
            self._done()
        if self._is_rank() and not self.done and not self._failure.exists():
            made, job = len(self.iterations) + self.count, self.session.job
            if self.proved:
                self.proved.ended = True
                self._write(sample_of(self.session, (), active(self.watched), self.seconds))
                return
            steps = steps_of_script(job.steps, job.warmup, job.device, job.long)
            needed = steps * (self.period or 1)
            needed += MOST if not self.period and made >= needed else 0  # so many may be needed to see the loop
            self._report(
                Unfit(
                    f"The script ended after {made} iterations, but {job.steps} timed steps need {needed}. Let it "
                    "train longer, or ask for fewer timed steps: --perf-steps, or --steps of `perfsuite run`.",
                    timed_steps=job.steps + made // self.period - steps if self.period else None,
                )
            )

    def _is_rank(self) -> bool:
        return self.progress is not None and self.owner == os.getpid()

    @property
    def _failure(self) -> Path:
        return self.folder / f"rank{self.session.rank}.failure.json"

    def _report(self, error: BaseException) -> None:
        self.done = True
        where = self.progress.where if self.progress else "at its start"
        report(error, self.folder, self.session.rank, where, self.session)


def _folders() -> tuple[str, str]:
    """The one in which the script runs, and the user's, of which it is a copy."""
    copy, _, original = started_with["PERFSUITE_COPY"].partition(os.pathsep)
    return copy, original


def _seed(seed: int) -> None:
    """The seeds of a script that sets none: its numbers then repeat. Those that it sets come later, and count."""
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def _wait_for(files: Sequence[Path]) -> None:
    """Until the other ranks are done: they may still need this one."""
    deadline = time.monotonic() + END_SECONDS
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.01)


def _leave(status: int) -> None:
    """End this process and its children, whatever the script would do at its end. Later, they would be nobody's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, or closed
            stream.flush()
    for child in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    os._exit(status)
