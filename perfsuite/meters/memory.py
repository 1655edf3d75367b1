"""Peak memory: the most bytes of live tensors on a rank from the first step on, by purpose.

On a CPU the bytes are counted by an allocator in front of torch's; on CUDA they are those of the caching allocator's
history. A rank with several devices has each of these numbers for each device, and they are folded as those of ranks:
the peak is that of the fullest device.
The first steps are recorded, event by event, and give the peak and its anatomy. If more is alive after the timed steps
than after the recorded ones, that is a leak, and ends the cell. The message has what
each recorded step left, by operator and module.
"""

import contextlib
import gc
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perfsuite.catalog.definitions import EVERY_DIFFERENCE, OF_A_PEAK, Metric
from perfsuite.catalog.processes import IN_TORCH
from perfsuite.errors import RankError
from perfsuite.meters._growth import each_step, goes_on, is_asked_at, rising
from perfsuite.meters.compilation import compiled_again
from perfsuite.rank.memory.leftovers import leftovers, leftovers_text
from perfsuite.rank.memory.recorder import live_bytes
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import TRACED_STEPS, StepKind
from perfsuite.records.suspects import fold
from perfsuite.system.units import BYTES

MIB = 2**20  # of garbage, which a small script has as well


class Memory(Meter):
    """Reads the record of the first steps, and what is alive after them."""

    processes = IN_TORCH
    launches = ("measured", "traced")
    order = Order.MEMORY
    trainer: Any  # a script's in later steps

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        assert session.memory, "recorded in each launch in which this meter reads"
        self.record = session.memory
        self.source = self.record.source
        self.evaluated_once = False
        self.fed = 0  # bytes of the last batch, which differ from step to step if sequences are packed
        self.recorded_live = 0  # bytes after the recorded steps, without their last batch
        self.steps = 0  # since the recording stopped
        self.kept: list[tuple[int, int]] = []  # steps, and bytes that a script has kept; first, then each unfenced step
        self.later_peaks: list[int] = []  # of each device, of all steps that are as the script or the engine makes them
        self.later_kept: list[int] = []
        self.later_steps: list[int] = []  # the peak of each step after the measured ones, of the fullest device
        self.later_inputs: list[int] = []  # elements that modules were given, at the end of the same steps
        self.left: list[tuple[int | None, int | None]] = []  # of each device: reserved and free bytes
        session.phases.listen(self._mark)

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        self.record.prepared(trainer)

    @contextlib.contextmanager
    def feed(self, kind: StepKind) -> Iterator[None]:
        own = bool(self.session.job.model.batch)  # those of a task are all as large
        before = self.source.live_bytes if own else 0
        yield
        self.fed = self.source.live_bytes - before if own else 0

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        self.source.begin_step()
        if not gc.isenabled():
            self.session.garbage.collect()
        if kind == StepKind.TRACED:
            self.source.settle()  # the barrier before the step has a tensor of its own
        elif self.record.is_on and kind != StepKind.COMPILING:
            self.record.stop()
            self.recorded_live = self.record.live_bytes - self.fed
        if kind == StepKind.COUNTED:
            if not self.evaluated_once:
                self._check_growth()
            self.left = [(one.reserved_bytes, one.free_bytes) for one in self.source.each]
            self.later_peaks = [one.peak_bytes for one in self.source.each]
            self.source.set_capacity(None)  # dispatch modes change what memory is used
        return contextlib.nullcontext()

    def _mark(self, phase: str) -> None:
        """An evaluation may leave more alive than a step (ZeRO-3 keeps parameters gathered that a backward would
        release), so the steps are checked before the first evaluation; epochs.py compares epochs.
        """
        if phase == "evaluation" and not self.evaluated_once:
            self.evaluated_once = True
            self._check_growth()

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        self.steps += not self.record.is_on
        if self.session.strategy.engine.own and (self.steps == 1 or kind == StepKind.UNFENCED):
            self.session.garbage.collect()
            self.kept.append((self.steps, self.source.kept_bytes))

    def readings(self) -> dict[str, Reading]:
        readings = over_devices([self._readings_of(number) for number in range(len(self.source.each))])
        if self.session.strategy.engine.own:
            grown = self._grown()
            left = leftovers(self.record.events, self.record.marks) if grown else {}
            kept = {f"kept: {place}": size for place, size in left.items()}
            carried = self.record.anatomies[self.record.fullest].carried
            parts = Counter[str]()
            for (part, _), size in carried.items():
                parts[part] += size
            readings["carried_bytes"] = Reading(value=parts.total(), parts=dict(parts), suspects=_suspects(carried))
            self.has_grown = bool(grown)
            readings["grown_bytes"] = Reading(value=grown, parts=_some({"kept": grown}), suspects=kept)
        return readings

    def _readings_of(self, number: int) -> dict[str, Reading]:
        """Those of one device."""
        anatomy = self.record.anatomies[number]
        self.source.each[number].prove_peak(anatomy.peak_bytes, self.record.peaks[number])
        peak = Reading(
            value=anatomy.peak_bytes, parts=_some(anatomy.categories), suspects=_suspects(anatomy.operations)
        )
        readings = {"peak_memory_bytes": peak}
        readings["setup_memory_bytes"] = Reading(value=self.record.setup_peaks[number])
        process = self.session.strategy.engine.process
        readings |= {
            f"{category}_bytes": Reading(value=anatomy.largest[category])
            for category, processes in HELD.items()
            if process in processes
        }
        if self.later_peaks and self.session.strategy.engine.own:  # other cells repeat one step
            readings["run_peak_bytes"] = Reading(value=self.later_peaks[number], samples=[self.later_peaks[number]])
        reserved, free = self.left[number] if self.left else (None, None)
        if reserved is not None:
            readings["reserved_memory_bytes"] = Reading(value=reserved)
        if free is not None:
            readings["free_memory_bytes"] = Reading(value=free)
        return readings

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if step:
            self.later_steps.append(self._peak())
            self.later_inputs.append(self.trainer.watched.elements)
        self.source.begin_step()
        if self.has_grown and is_asked_at(step):
            self.session.garbage.collect()
            self.later_kept.append(self.source.kept_bytes)
        self.source.reset_peak()

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        rate = int(readings["grown_bytes"].value) if self.has_grown else 0
        changed = {} if goes_on(self.later_kept, rate) else {"grown_bytes": Reading(value=0)}
        larger = self.has_grown or rising(each_step(self.later_inputs))  # of kept tensors, or of batches
        if not larger and (grown := rising(self.later_steps)):
            changed["grown_bytes"] = Reading(value=grown, parts={"larger": grown})
        if before := readings.get("run_peak_bytes"):
            peaks = [before.value, *self.later_steps, self._peak()]
            changed["run_peak_bytes"] = Reading(value=max(peaks), samples=list(peaks))
        return changed

    def _peak(self) -> int:
        """Of the fullest device, since it was reset."""
        return int(max(one.peak_bytes for one in self.source.each))

    def _grown(self) -> int:
        """By how much a script's step grows what is kept. What is freed once hides a small leak from the first number;
        the second has no leak of some steps alone.
        """
        (first, before), (last, after) = self.kept[0], self.kept[-1]
        least = min((then - now for (_, now), (_, then) in itertools.pairwise(self.kept[1:])), default=0)
        return max(0, (after - before) // max(1, last - first), least)

    def _check_growth(self) -> None:
        if self.session.strategy.engine.own:  # it may keep what it likes
            return
        grown = live_bytes(self.source) - self.fed - self.recorded_live
        if grown > 0:
            raise RankError(
                f"Memory leaks: {grown:,} bytes more are alive now, after the timed steps, than after the first "
                f"{TRACED_STEPS} steps. {leftovers_text(leftovers(self.record.events, self.record.marks))}"
                f"{compiled_again()}"
            )


def over_devices(devices: Sequence[dict[str, Reading]]) -> dict[str, Reading]:
    """The readings of a rank's devices as the rank's: each is that of one device, with all values in ``ranks``."""
    if len(devices) == 1:
        return devices[0]
    least = {metric.name for metric in METRICS if metric.fold == "min"}
    folded = {}
    for name in devices[0]:
        readings = [device[name] for device in devices]
        one = (min if name in least else max)(readings, key=lambda reading: reading.value)
        folded[name] = msgspec.structs.replace(one, ranks=[reading.value for reading in readings])
    return folded


def _suspects(operations: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The operators whose tensors are alive at the peak; backward's are named by their autograd node."""
    prefix = "autograd::engine::evaluate_function: "
    return fold({f"{part}: {name.removeprefix(prefix)}": size for (part, name), size in operations.items() if name})


def _some(sizes: dict[str, int]) -> dict[str, int]:
    return {category: size for category, size in sizes.items() if size}


_BOTH, _TRAINING = ("training", "inference", "script"), ("training", "script")
HELD = {
    "parameters": _BOTH,
    "master_parameters": _TRAINING,
    "optimizer_state": _TRAINING,
    "gradients": _TRAINING,
}  # category → the processes that have it
METER = Memory
METRICS = (
    Metric("peak_memory_bytes", "peak memory", BYTES, hold="exact", column=1, materiality=OF_A_PEAK),
    # Of all steps, recorded or not. When Python collects garbage, and when messages end, is not always the same.
    Metric(
        "run_peak_bytes",
        "peak of all steps",
        BYTES,
        hold="most",
        bound=0.05,
        slack=MIB,
        optional=True,
        processes=("script",),
    ),
    # Building and preparing can need more than a step. Not compared: libraries free it at arbitrary times.
    Metric("setup_memory_bytes", "setup memory", BYTES),
    Metric("grown_bytes", "memory grown/step", BYTES, hold="exact", processes=("script",)),
    # What a step keeps for the next one alone: a training needs none of it.
    Metric("carried_bytes", "tensors of the step before at the peak", BYTES, optional=True, processes=("script",)),
    Metric("reserved_memory_bytes", "reserved", BYTES, optional=True),
    Metric("free_memory_bytes", "left on the device", BYTES, optional=True, fold="min", worse="lower"),
    *(
        Metric(
            f"{category}_bytes",
            category.replace("_", " "),
            BYTES,
            hold="exact",
            materiality=EVERY_DIFFERENCE if category == "parameters" else OF_A_PEAK,  # one more is another model
            processes=processes,
        )
        for category, processes in HELD.items()
    ),
)
