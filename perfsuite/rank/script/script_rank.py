"""A process of a script that trains, and so is a rank: it waits until the loop repeats, measures it, and reports."""

import dataclasses
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.cell_id import CellId, HardwareName
from perfsuite.errors import RankError
from perfsuite.rank.meter import Meter, meters_of
from perfsuite.rank.results import report, sample_of
from perfsuite.rank.script.ending import completed, leave, wait_for
from perfsuite.rank.script.later import Later, has_later_steps
from perfsuite.rank.script.loop import MOST, ScriptLoop, Shared, extras, loop_of
from perfsuite.rank.script.on_cuda import check_device, settle_on
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.script_trainer import ScriptTrainer, SeenScript, active, names_of
from perfsuite.rank.session import Session
from perfsuite.rank.steps import kinds_of, step_loop
from perfsuite.records import codec
from perfsuite.records.job import PID
from perfsuite.records.progress import ProgressWriter
from perfsuite.records.sample import RankSample
from perfsuite.records.step_kinds import steps_of_script


class Unfit(RankError):
    """The script has another world size than its cell, or makes too few steps for it."""

    def __init__(self, text: str, world_size: int | None = None, timed_steps: int | None = None) -> None:
        super().__init__(text)
        self.world_size = world_size
        self.timed_steps = timed_steps


@dataclass(frozen=True)
class FirstWatched:
    """What watches the process from before its model is built: on which device, and the meters that do."""

    device: str = ""
    meters: tuple[Meter, ...] = ()


class MeasuredLoop:
    """From the next iteration on, steps are measured: whenever the script has made one, the loop of steps goes on.

    ``seconds`` are those of the iterations that showed the loop.
    """

    def __init__(
        self, session: Session, loop: ScriptLoop, seen: SeenScript, first: FirstWatched, seconds: list[float]
    ) -> None:
        import torch

        watched = seen.watched
        check_device(session, watched.devices, first.device)
        if session.job.device == "cuda":
            settle_on(torch, first.device)
        self.period, self.made = loop.period, 0  # iterations
        self.later: Later | None = None
        self._garbage = session.garbage
        self._watched, self._by_hand, self._optimizers = watched, watched.by_hand, len(watched.optimizers)
        self._plain = [events.split("|")[session.rank] for events in loop.plain]  # of each iteration, without extras
        models = watched.models
        model = models[0] if len(models) == 1 else torch.nn.ModuleDict(names_of(models))
        with torch.random.fork_rng(devices=[]):  # the script's numbers stay as they are
            self.meters = meters_of(session, first.meters)
            self.trainer = ScriptTrainer(session, model, seen, self.period, tuple(seconds))
            for meter in self.meters:
                meter.prepared(self.trainer)
        self._steps = step_loop(session, self.trainer, self.meters, kinds_of(session))
        self.begun = time.perf_counter()
        next(self._steps)

    def iterated(self, events: str, skipped: bool) -> bool:
        """An iteration has ended. Whether it was the last of the last measured step. Raises RankError if a step was
        longer than the loop had shown.
        """
        self.made += 1
        if self.later is None:
            self._check()
            self.trainer.iterated(extras(events, self._plain[(self.made - 1) % self.period]))
        if self.made % self.period:
            return False
        if self.later:
            self._garbage.made()
            self.later.stepped(self.trainer.outcome(skipped))
            return False
        try:
            self._steps.send(skipped)
        except StopIteration:
            return True
        return False

    def _check(self) -> None:
        if self._watched.by_hand != self._by_hand:
            raise RankError(
                "perfsuite.step() was called for the first time when steps of an optimizer were measured already. Call "
                "it once before the first optimizer step, too."
            )
        if self._watched.counts and len(self._watched.optimizers) > self._optimizers:
            late = type(list(self._watched.optimizers.values())[-1]).__name__
            raise RankError(
                f"An optimizer, {late}, has stepped for the first time after the loop had repeated, so a step of it is "
                "longer than was seen. Call perfsuite.step() once before the first optimizer step, and where each step "
                "that counts ends."
            )


class ScriptRank:
    """Made when the first iteration has ended: only then is the process group known, and that this process is a rank.

    ``begun`` is when the process was attached, by ``time.perf_counter``.
    """

    def __init__(
        self, folder: Path, session: Session, seen: SeenScript, proved: ProvedScript | None, begun: float
    ) -> None:
        import torch.distributed as dist

        joined = dist.is_available() and dist.is_initialized()
        rank = dist.get_rank() if joined else 0
        self.ranks = dist.get_world_size() if joined else 1
        self.progress = ProgressWriter(folder / f"rank{rank}.progress")
        self.progress.mark("batch")  # of the step that has ended
        session.phases.report_to(self.progress)
        self.session = dataclasses.replace(session, rank=rank % session.world_size)
        self.process = os.getpid()
        self.measured: MeasuredLoop | None = None
        self.is_done = False
        self._folder, self._seen, self._proved, self._begun = folder, seen, proved, begun
        self._shared = Shared(folder, rank, session.world_size, self.progress.wait)
        self._iterations: list[str] = []  # the events of each that showed the loop
        self._iteration_seconds: list[float] = []
        self._seconds = {"start": time.perf_counter() - begun}
        part = folder / f"{PID.format(rank=rank)}.part"
        part.write_text(f"{os.getpid()} {socket.gethostname()}")
        part.rename(folder / PID.format(rank=rank))

    def check_ranks(self) -> None:
        """Raise Unfit unless the script has as many ranks as its cell. The first to report ends the others, which may
        be the cell's.
        """
        if self.ranks != self.session.world_size:
            device = HardwareName.parse(CellId.parse(self.session.job.cell).hardware).kind
            raise Unfit(
                f"The script trains on {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}, but its cell has "
                f"{self.session.world_size}: its hardware is {HardwareName(device, self.ranks)}.",
                world_size=self.ranks,
            )

    @property
    def later(self) -> Later | None:
        """What watches the steps after the measured ones, once these are made."""
        return self.measured.later if self.measured else None

    def iterated(self, skipped: bool, seconds: float, first: FirstWatched) -> None:
        """The script has made an iteration in so many seconds."""
        watched = self._seen.watched
        if self._proved:
            if self._proved.iterated(skipped, self.session.rank):
                self._write_proved()
            return
        events, watched.events = watched.events, ""
        if self.measured:
            if self.measured.iterated(events, skipped):
                self._finish(self.measured)
            return
        self._iteration_seconds.append(seconds)
        events, waits = self._shared.iteration(events, watched.counts and watched.unstepped)
        self._iterations.append(events)
        watched.forget()
        if loop := None if waits and len(self._iterations) <= MOST else loop_of(self._iterations):
            self.measured = MeasuredLoop(self.session, loop, self._seen, first, self._iteration_seconds)
        elif len(self._iterations) > MOST:
            last = ", ".join(self._iterations[-3:])
            raise RankError(
                f"The loop does not repeat: the last of {len(self._iterations)} iterations were {last} (D data, F "
                "forward, B backward, O0 the first optimizer, | the next rank). Call perfsuite.step() where a "
                "step ends."
            )
        else:
            self.session.phases.mark("batch")
            self.session.phases.mark("other")

    def forget_iterations(self) -> None:
        """Those so far do not repeat."""
        self._iterations.clear()

    def _finish(self, measured: MeasuredLoop) -> None:
        """All measured steps are made. What the script does from here on is watched for a while."""
        self._seconds["steps"] = time.perf_counter() - measured.begun
        sample = sample_of(self.session, measured.meters, measured.trainer.check(), self._seconds)
        if not has_later_steps(self.session.job):
            self._write(sample)
            return
        self.session.phases.forget_all()
        measured.trainer.reads_norm = False
        measured.later = Later(self._folder, completed(sample, {}), measured.meters, self.finish)
        measured.later.begin(time.perf_counter() - self._begun)

    def _write_proved(self) -> None:
        self._write(sample_of(self.session, (), active(self._seen.watched), self._seconds))

    def _write(self, sample: RankSample) -> None:
        observed = self._proved.observed() if self._proved else {}
        codec.write(self._folder / f"rank{sample.rank}.json", completed(sample, observed))
        self.finish()

    def finish(self) -> None:
        """This rank's sample is written. The others may still need this one."""
        self.is_done = True
        wait_for([self._folder / f"rank{one}.json" for one in range(self.session.world_size)])
        leave(0)

    def ended(self) -> None:
        """The script has ended by itself."""
        if self.later:
            self.later.write(ended=True)
            self.finish()
        if self.is_done or (self._folder / f"rank{self.session.rank}.failure.json").exists():
            return
        if self._proved:
            self._proved.ended = True
            self._write_proved()
            return
        job, period = self.session.job, self.measured.period if self.measured else 0
        made = len(self._iterations) + (self.measured.made if self.measured else 0)
        steps = steps_of_script(job.steps, job.warmup, job.device, job.long)
        needed = steps * (period or 1)
        needed += MOST if not period and made >= needed else 0  # so many may be needed to see the loop
        self.report(
            Unfit(
                f"The script ended after {made} iterations, but {job.steps} timed steps need {needed}. Let it "
                "train longer, or ask for fewer timed steps: --perf-steps, or --steps of `perfsuite run`.",
                timed_steps=job.steps + made // period - steps if period else None,
            )
        )

    def report(self, error: BaseException) -> None:
        """Write why this rank ends."""
        self.is_done = True
        report(error, self._folder, self.session.rank, self.progress.where, self.session)
