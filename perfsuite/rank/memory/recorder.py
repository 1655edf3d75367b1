"""Records the memory of a rank's first steps, from before its model is built: each allocation, release and phase."""

import contextlib
import functools
import gc

from perfsuite.catalog.processes import IN_TORCH
from perfsuite.rank.memory.anatomy import Anatomy, Mark, dissect
from perfsuite.rank.memory.cpu_allocator import CpuAllocator
from perfsuite.rank.memory.cuda_history import CudaHistory
from perfsuite.rank.memory.oom import parts_at_refusal
from perfsuite.rank.memory.whereabouts import watch
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer

Source = CpuAllocator | CudaHistory  # where the bytes of a device are counted


def open_source(session: Session) -> Source:
    """Where the bytes of the rank's devices are counted."""
    if session.job.device == "cpu":
        return CpuAllocator()
    return CudaHistory([device.index for device in session.devices], stacks=bool(session.job.traces))


def live_bytes(source: Source) -> int:
    """Bytes that stay alive: garbage in reference cycles is collected first."""
    gc.collect()
    return source.live_bytes


def record_memory(session: Session) -> "MemoryRecorder | None":
    """Begin to record; None for a cell without torch's tensors, and in a launch that only takes times."""
    if session.job.times_only or session.strategy.engine.process not in IN_TORCH:
        return None
    return MemoryRecorder(session)


class MemoryRecorder:
    """The record of this rank: of each device a log that has an event (address, bytes, operator) for each allocation,
    release and mark. ``is_on`` until ``stop``. ``marks`` are the beginnings of phases, by their numbers in the log.
    """

    def __init__(self, session: Session) -> None:
        self.source = open_source(session)
        self.source.set_capacity(session.job.capacity_bytes)
        self.marks: dict[int, Mark] = {}
        self.is_on = True
        self.setup_peaks = self.peaks = [0] * len(self.source.each)  # bytes of each device: of the set-up, of the steps
        self.live_bytes = 0  # at the end of the record, with the last batch
        self._session, self._stepping = session, False
        self._trainer: Trainer | None = None
        self._owned: dict[int, int] = {}  # bytes of the trainer's storages on a CPU, by address
        self._settled, self._watched = contextlib.ExitStack(), contextlib.ExitStack()
        self.source.record(True)
        session.phases.listen(self.mark)
        session.changes.callback(self._settled.close)

    def prepared(self, trainer: Trainer) -> None:
        """The engine is ready: what it knows by name has a category from now on."""
        self._trainer = trainer
        self._settled.enter_context(self.source.settled())
        self._watched.enter_context(watch(trainer.model, self.source.enter_module, self._session))
        # A tensor in a reference cycle lives until Python collects it, which depends on the number of new objects.
        # Recorded steps collect only at their beginning, so that a peak repeats itself.
        if gc.isenabled():  # user code may have disabled it
            gc.disable()
            self._settled.callback(gc.enable)

    def mark(self, phase: str) -> None:
        """A phase begins: note the category of each storage."""
        if not self.is_on:
            return
        self.source.enter_phase(self._session.phases.outside(phase))
        if self._trainer is None:
            return
        named = self._named()
        if phase == "batch" and not self._stepping:
            self._stepping = True
            self.setup_peaks = [one.peak_bytes for one in self.source.each]
            self.source.reset_peak()
        self.source.settle()
        number = len(self.marks)
        self.marks[number] = Mark(phase, named)
        self.source.mark(number)

    def _named(self) -> dict[int, str]:
        """The storages that the trainer knows by name, by address. Those of a mapped file count from now on, as
        batches in shared memory do.
        """
        named: dict[int, str] = {}
        self._owned.clear()
        assert self._trainer
        for category, tensor in self._trainer.storages():
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address:
                named.setdefault(address, category)
                if tensor.device.type == "cpu":
                    self._owned[address] = storage.nbytes()
        batches = [one.untyped_storage() for one in self._trainer.batch_tensors() if one.device.type == "cpu"]
        self.source.adopt(self._owned | {batch.data_ptr(): batch.nbytes() for batch in batches if batch.data_ptr()})
        return named

    @property
    def is_recording_steps(self) -> bool:
        """Whether a recorded step has begun, and the record has not ended."""
        return self.is_on and self._stepping

    def at_refusal(self) -> dict[str, int]:
        """The bytes alive when memory ran out in a recorded step, by category; empty if unknown. The record ends."""
        if not self.is_recording_steps:
            return {}
        named = self._named()
        self.source.record(False)
        for one in self.source.each:
            if refused := one.refused():
                return parts_at_refusal(one.events(), self.marks, named, refused)
        return {}

    def stop(self) -> None:
        """Stop the log. From here on, only bytes that stay alive are counted."""
        self.is_on = False
        self._watched.close()
        self.source.adopt(self._owned)  # nothing says from here on which batch is alive
        if self._session.job.capacity_bytes is None:  # under one, all steps must use as much as the recorded ones
            self._settled.close()
        self.source.record(False)
        self.peaks = [one.peak_bytes for one in self.source.each]
        self.live_bytes = live_bytes(self.source)

    def release(self) -> None:
        """Let go of the trainer, whose memory another one needs."""
        self._trainer = None
        self._watched.close()

    @functools.cached_property
    def logs(self) -> list[list[tuple[int, int, str]]]:
        """The log of the traced steps, of each device."""
        return [one.events() for one in self.source.each]

    @functools.cached_property
    def anatomies(self) -> list[Anatomy]:
        """Of the peak of each device."""
        return [dissect(log, self.marks, self._session.strategy.engine.own) for log in self.logs]

    @functools.cached_property
    def fullest(self) -> int:
        """Which device has the highest peak, the first of equals."""
        peaks = [anatomy.peak_bytes for anatomy in self.anatomies]
        return peaks.index(max(peaks))

    @property
    def events(self) -> list[tuple[int, int, str]]:
        """The log of the fullest device."""
        return self.logs[self.fullest]

    @property
    def times(self) -> list[int]:
        """When each of these events happened, in nanoseconds since 1970."""
        times: list[int] = self.source.each[self.fullest].times()
        return times
