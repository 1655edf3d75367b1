"""Checkpoints: what it costs to save a training and to load it, and whether it goes on as if nothing had happened.

Trained anew after all else is measured, so that it changes no other number: some steps, the saves, and some steps more,
which are the unbroken run. Then the model is built again, the checkpoint is loaded, and the same steps are made: their
losses must be equal to the bit. Random numbers are drawn anew on both sides there, as a script that saves their state
does. Rank 0 also reads the checkpoint without the others, as a training on another number of ranks would.
"""

import dataclasses
import gc
import hashlib
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from perfsuite.catalog.definitions import OF_A_CHECKPOINT, OF_A_PEAK, Metric
from perfsuite.errors import PerfsuiteError, RankError, Unsupported
from perfsuite.meters.host import begin_high_water_mark, high_water_mark
from perfsuite.rank.build_model import build_model, prepare, seed_steps
from perfsuite.rank.memory.recorder import live_bytes, open_source
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer
from perfsuite.rank.turns import align
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES, SECONDS, WHOLE

BEFORE, AFTER = 2, 3  # steps before and after the save: the optimizer's state changes the second loss after it
TIMES = 3  # saves and loads whose time counts, after one whose memory does: it imports and compiles
KEPT = ("parameters", "master_parameters", "optimizer_state")  # the categories of tensors that a load must bring back
MOST_OF_ERROR = 300  # characters
T = TypeVar("T")


class Checkpoints(Meter):
    """Reads nothing of a cell that names no format."""

    processes = ("training",)
    alone = True

    def readings(self) -> dict[str, Reading]:
        make, job, scratch = self.session.recipe.checkpoint, self.session.job, self.session.scratch
        if make is None or job.times_only:
            return {}
        if job.nodes > 1 or scratch is None:
            raise Unsupported("A checkpoint needs a folder that all ranks see, and nodes share none here.")
        session = _own(self.session)
        folder = scratch / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        here = Path.cwd()
        os.chdir(folder)  # a checkpoint may contain its own path, whose length differs between machines
        try:
            align(session)
            read = _Measured(session, make()).readings()
        finally:
            os.chdir(here)
        align(session)
        if session.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        return read


def _own(session: Session) -> Session:
    return dataclasses.replace(session, phases=session.phases.copy())  # faults listen, too


class _Measured:
    """One training that is saved, and one that resumes it."""

    def __init__(self, session: Session, form: Any) -> None:
        self.session, self.form = session, form
        self.source = open_source(session)
        self.read: dict[str, Reading] = {}

    def readings(self) -> dict[str, Reading]:
        session, form = self.session, self.form
        trainer = self._trainer()
        self._steps(trainer, 0, BEFORE)
        self._peaks("save", lambda: form.save(trainer, Path("saved"))())
        timed = [self._save(trainer, Path(f"timed{number}")) for number in range(TIMES)]
        self._add("save_stall_seconds", [returned for returned, _ in timed])
        self._add("save_seconds", [written for _, written in timed])
        if (blocked := form.is_blocked(trainer, Path("held"))) is not None:
            self.read["blocked_saves"] = Reading(value=int(blocked))
        self._bytes(Path("saved"))
        kept, expected = _digests(trainer), form.whole(trainer)
        unbroken = self._steps(trainer, BEFORE, AFTER)
        del trainer
        self._release()

        trainer = self._trainer()
        self._peaks("load", lambda: _loaded(form.load, trainer, Path("saved")))
        self._add("load_seconds", [self._clocked(lambda: form.load(trainer, Path("saved"))) for _ in range(TIMES)])
        lost = kept - _digests(trainer)
        parts = {name: sum(1 for one, _ in lost.elements() if one == name) for name in KEPT}
        self._wrong("wrongly_loaded_tensors", {name: number for name, number in parts.items() if number})
        resumed = self._steps(trainer, BEFORE, AFTER)
        differing = sum(one != other for one, other in zip(unbroken, resumed, strict=True))
        self.read["wrongly_resumed_steps"] = Reading(value=differing)
        if session.world_size > 1:
            self._reread(trainer, expected)
        return self.read

    def _reread(self, trainer: Trainer, expected: Mapping[str, Any]) -> None:
        """Rank 0 reads alone. Of what the library gives up, such as a tied parameter's second name, one name counts."""
        wrong: dict[str, int] = {}
        if self.session.rank == 0:
            import torch

            read = _loaded(self.form.alone, trainer, Path("saved"))
            for name, tensor in expected.items():
                other = read.get(name)
                if other is None or not torch.equal(other.detach().cpu().to(tensor.dtype), tensor.cpu()):
                    wrong[name] = 1
        self._wrong("wrongly_reread_tensors", wrong)
        align(self.session)

    def _wrong(self, name: str, parts: dict[str, int]) -> None:
        self.read[name] = Reading(value=sum(parts.values()), parts=parts)

    def _trainer(self) -> Trainer:
        self.session.mark("check")
        trainer, _ = prepare(self.session, build_model(self.session), [])
        return trainer

    def _steps(self, trainer: Trainer, first: int, number: int) -> list[float]:
        """The losses of so many steps, on this rank."""
        seed_steps(self.session)
        losses = []
        for step in range(first, first + number):
            self.session.mark("batch")
            loss = trainer.finished(trainer.step(trainer.batch(step))).loss
            assert loss is not None
            losses.append(float(loss))
        return losses

    def _save(self, trainer: Trainer, folder: Path) -> tuple[float, float]:
        """The seconds until the training may go on, and until all is written."""
        self.session.mark("check")
        align(self.session)
        self.session.synchronize()
        begin = time.perf_counter()
        wait = self.form.save(trainer, folder)
        returned = time.perf_counter() - begin
        wait()
        return returned, time.perf_counter() - begin

    def _clocked(self, act: Callable[[], object]) -> float:
        self.session.mark("check")
        align(self.session)
        begin = time.perf_counter()
        act()
        self.session.synchronize()
        return time.perf_counter() - begin

    def _add(self, name: str, seconds: Any) -> None:
        self.read[name] = Reading(value=statistics.median(seconds))

    def _peaks(self, name: str, act: Callable[[], object]) -> None:
        """The most bytes above those that are alive before, on the device and in the host's process."""
        before = live_bytes(self.source)
        align(self.session)
        self.source.reset_peak()
        resident = begin_high_water_mark()
        with self.source.settled():
            act()
        align(self.session)
        self.read[f"{name}_peak_bytes"] = Reading(value=max(0, self.source.peak_bytes - before))
        if resident is not None:
            self.read[f"{name}_host_bytes"] = Reading(value=max(0, high_water_mark() - resident))

    def _bytes(self, folder: Path) -> None:
        """All that the ranks have written, by the kind of file."""
        align(self.session)
        sizes: Counter[str] = Counter()
        if self.session.rank == 0:
            for file in folder.rglob("*"):
                if file.is_file():
                    sizes[file.suffix or file.name] += file.stat().st_size
        self.read["checkpoint_bytes"] = Reading(value=sum(sizes.values()), parts=dict(sizes))

    def _release(self) -> None:
        gc.collect()
        align(self.session)


def _loaded(load: Callable[[Any, Path], T], trainer: Trainer, folder: Path) -> T:
    """Raises RankError with the library's own reason: a file that is torn, or one that is not there."""
    try:
        return load(trainer, folder)
    except (PerfsuiteError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception, and has the stacks of all ranks
        reason = (str(error).strip() or "no reason").splitlines()[-1][:MOST_OF_ERROR]
        raise RankError(f"The checkpoint cannot be loaded: {type(error).__name__}: {reason}") from error


def _digests(trainer: Trainer) -> Counter[tuple[str, bytes]]:
    """Every tensor that belongs in a checkpoint, by its category and bits."""
    import torch

    found: Counter[tuple[str, bytes]] = Counter()
    for category, tensor in trainer.storages():
        if category in KEPT:
            plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found[category, hashlib.sha256(plain.numpy().tobytes()).digest()] += 1
    return found


_optional: dict[str, Any] = {"optional": True, "processes": ("training",)}
_exact: dict[str, Any] = {"hold": "exact", **_optional}
_of_scripts: dict[str, Any] = {**_optional, "processes": ("training", "script")}  # meters/saves.py reads theirs
METER = Checkpoints
METRICS = (
    Metric("save_seconds", "time to save", SECONDS, **_optional),
    Metric("save_stall_seconds", "training waits for a save", SECONDS, **_of_scripts),
    Metric("load_seconds", "time to load", SECONDS, **_optional),
    Metric(
        "checkpoint_bytes",
        "checkpoint on disk",
        BYTES,
        fold="sum",
        hold="exact",
        worse="different",  # a smaller one may lack what a resume needs
        materiality=OF_A_CHECKPOINT,
        **_of_scripts,
    ),
    Metric("save_peak_bytes", "peak of a save", BYTES, materiality=OF_A_PEAK, **_exact),
    Metric("load_peak_bytes", "peak of a load", BYTES, materiality=OF_A_PEAK, **_exact),
    Metric("save_host_bytes", "host RSS of a save", BYTES, **_optional),
    Metric("load_host_bytes", "host RSS of a load", BYTES, **_optional),
    Metric("blocked_saves", "async saves that block", WHOLE, hold="zero", **_optional),
    Metric("wrongly_loaded_tensors", "tensors wrong after a load", WHOLE, fold="sum", hold="zero", **_optional),
    Metric(
        "wrongly_reread_tensors",
        "tensors wrong on other ranks",
        WHOLE,
        fold="sum",
        hold="zero",
        **_optional,
    ),
    Metric("wrongly_resumed_steps", "losses wrong after a resume", WHOLE, hold="zero", **_optional),
)
