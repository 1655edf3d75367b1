"""The memory that one trace of a rank says: the replayed allocator, the parts of the peak, and what lies beside it."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.processes import PROCESSES
from perfsuite.features.predict.allocator import CachingAllocator, Event, replay, smallest_capacity
from perfsuite.features.predict.compiled_memory import of_program
from perfsuite.features.predict.overhead import overhead
from perfsuite.features.predict.prediction import HeldStorages, Prediction
from perfsuite.features.predict.theory import model_state
from perfsuite.features.predict.trace_records import HOST, Trace
from perfsuite.rank.memory.anatomy import CATEGORIES, Anatomy, Mark, curve, dissect
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import fold, locate

MOST_HELD = 24
MOVES = {"offload_optimizer", "offload_parameters", "paged", "around"}  # fields of a recipe that move tensors there
PEAK = "peak_memory_bytes"
_LAYER = re.compile(r"\.\d+(?=\.|$)")  # repeated layers are reported together
MOST_POINTS = 600  # in the curve


def summarize(cell: Cell, rank: int, trace: Trace) -> Prediction:
    """The prediction for the rank from its trace."""
    if PROCESSES[cell.strategy.engine.process].compiled:
        return of_program(cell, trace)
    device = cell.hardware.device
    marks = {number: Mark(mark.phase, mark.named) for number, mark in enumerate(trace.marks)}
    on_device = [event for event in trace.events if event[3] != HOST]
    events = [(storage, size, trace.labels[label]) for storage, size, label, _ in on_device]
    anatomy = dissect(events, marks)
    first = _first_batch(on_device, trace)
    allocated = reserved = smallest = 0
    if device is not None:
        allocator, smallest = placed(trace)
        allocated, reserved = allocator.allocated_peak, allocator.reserved_peak
    outside = beside(cell)
    capacity = device.usable_bytes if device else None
    return Prediction(
        format=FORMAT,
        cell=cell.id,
        outcome="fits" if capacity is None or smallest + sum(outside.values()) <= capacity else "oom",
        world_size=cell.hardware.world_size,
        rank=rank,
        phase=anatomy.phase,
        peak_bytes=anatomy.peak_bytes,
        parts={name: size for name, size in anatomy.categories.items() if size},
        largest=anatomy.largest,
        ranks={rank: anatomy.peak_bytes},
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        smallest_bytes=smallest,
        setup_bytes=_most_live(on_device[:first]),
        host_bytes=host_bytes(cell, trace),
        overhead=outside,
        capacity_bytes=capacity,
        theory=model_state(cell, cell.layout),
        held=_held(anatomy.holders),
        categories=list(CATEGORIES),
        curve=curve(events, marks, MOST_POINTS),
        readings=trace.readings and {PEAK: _peak(anatomy), **trace.readings},
        versions=trace.versions,
        seconds=trace.seconds,
        rss_bytes=trace.rss_bytes,
    )


def placed(trace: Trace) -> tuple[CachingAllocator, int]:
    """The device's allocator after the trace, and the smallest device on which the trace fits, in bytes."""
    events = [event for event in trace.events if event[3] != HOST]
    first = _first_batch(events, trace)
    allocator = replay(events, first)
    return allocator, smallest_capacity(events, first, allocator)


def missing_bytes(cell: Cell, traces: Iterable[Trace]) -> int:
    """The bytes that the device lacks for the fullest of these traces of the cell; 0 if it fits, or is on a CPU.

    DistributedDataParallel's buckets are cut in a timed trace, so it may differ from a prediction by a few of them.
    """
    if cell.hardware.device is None:
        return 0
    needed = max(placed(trace)[1] for trace in traces) + sum(beside(cell).values())
    return max(0, needed - cell.hardware.device.usable_bytes)


def beside(cell: Cell) -> dict[str, int]:
    """The bytes of the device that lie outside of tensors, by what they are."""
    device, backward = cell.hardware.device, cell.strategy.engine.process == "training"
    return overhead(device, cell.hardware.world_size, backward) if device else {}


def host_bytes(cell: Cell, trace: Trace) -> int:
    """The most bytes that a rank offloads to the host's memory."""
    events = [event for event in trace.events if event[3] == HOST or event[0] == -1]
    if not moves_tensors(cell):
        return 0  # batches and scalars are there
    return _most_live(events, _first_batch(events, trace))


def moves_tensors(cell: Cell) -> bool:
    """Whether a technique of the cell keeps tensors in the host's memory."""
    return any(choice.technique.sets.get(field) for choice in cell.strategy.choices for field in MOVES)


def _peak(anatomy: Anatomy) -> Reading:
    suspects: Counter[str] = Counter()
    for (part, label), size in anatomy.operations.items():
        operator, _, module = label.partition("\t")
        suspects[f"{part}: {locate(operator, module)}"] += size
    parts = {name: size for name, size in anatomy.categories.items() if size}
    return Reading(value=anatomy.peak_bytes, parts=parts, suspects=fold(suspects, None))


def _first_batch(events: Sequence[Event], trace: Trace) -> int:
    return next(at for at, event in enumerate(events) if event[0] == -1 and trace.marks[event[1]].phase == "batch")


def _most_live(events: Sequence[Event], first: int = 0) -> int:
    """The most bytes that are alive after any event from ``first`` on."""
    live = [*itertools.accumulate(size if storage != -1 else 0 for storage, size, _, _ in events)]
    return max(live[first:], default=0)


def _held(holders: Iterable[tuple[str, str, int]]) -> list[HeldStorages]:
    """The largest groups of storages that are alive at the peak."""
    sizes: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for category, whole_label, size in holders:
        label = _LAYER.sub(".*", whole_label)
        sizes[category, label] += size
        counts[category, label] += 1
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:MOST_HELD]
    return [
        HeldStorages(category=category, operator=operator, module=module, count=counts[category, label], bytes=size)
        for (category, label), size in largest
        for operator, _, module in [label.partition("\t")]
    ]
