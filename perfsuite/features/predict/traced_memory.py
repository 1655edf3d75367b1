"""Predicts the memory of cells: traces their ranks, replays the device's allocator, and caches the results."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.allocator import CachingAllocator, Event, replay, smallest_capacity
from perfsuite.features.predict.compiled_memory import of_program
from perfsuite.features.predict.overhead import overhead
from perfsuite.features.predict.prediction import HeldStorages, Prediction
from perfsuite.features.predict.theory import model_state
from perfsuite.features.predict.trace.tracing import MemoryTracer, TraceFailed, job_of, kept_at, trace_each
from perfsuite.features.predict.trace_records import HOST, Trace, TraceJob
from perfsuite.features.predict.untraceable import why_not_traced
from perfsuite.launch.hardware_here import why_missing
from perfsuite.rank.memory.anatomy import CATEGORIES, Anatomy, Mark, curve, dissect
from perfsuite.rank.memory.snapshot import make_snapshot, pickled
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.formats import FORMAT
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import fold, locate

MOST_HELD = 24
MOVES = {"offload_optimizer", "offload_parameters", "paged", "around"}  # fields of a recipe that move tensors there
PEAK = "peak_memory_bytes"
_LAYER = re.compile(r"\.\d+(?=\.|$)")  # repeated layers are reported together
MOST_POINTS = 600  # in the curve


def predict(
    cells: Sequence[Cell],
    catalog: Catalog,
    *,
    processes: int = 1,
    padded: bool = True,
    counted: bool = False,
    fresh: bool = False,
) -> list[Prediction]:
    """The prediction of every cell, from the cache if nothing has changed; ``fresh``: never. Raises TraceFailed.

    A cell that cannot be traced has a prediction too, with the outcome "unsupported" and its reason. ``counted`` takes
    one more step, whose operators, FLOPs and messages are counted.
    """
    with MemoryTracer(processes) as tracer:
        outcomes = dict(attempt_each(cells, catalog, tracer, padded=padded, counted=counted, fresh=fresh))
    predictions = []
    for number, cell in enumerate(cells):
        found = outcomes[number]
        if isinstance(found, Failure):
            raise TraceFailed(cell.id, found)
        predictions.append(found)
    return predictions


def attempt_each(  # noqa: C901, PLR0912, PLR0915  its steps share which ranks are known, traced and still missing
    cells: Sequence[Cell],
    catalog: Catalog,
    tracer: MemoryTracer,
    *,
    padded: bool = True,
    counted: bool = False,
    fresh: bool = False,
) -> Iterator[tuple[int, Prediction | Failure]]:
    """Like predict, but the number of every cell with its prediction as soon as it is known, or with its failure.

    Each rank's prediction is cached when its trace ends, so that an interruption loses only what was running.
    """
    known: dict[int, dict[int, Prediction | Failure]] = defaultdict(dict)
    waiting: list[_Waiting] = []
    for number, cell in enumerate(cells):
        if reason := why_not_traced(cell) or why_missing(cell.strategy):
            known[number][0] = unsupported(cell, reason)
            continue
        for rank in ranks_of(cell):
            job = job_of(cell, rank, catalog, padded, counted)
            path = kept_at(job)
            if path and not fresh and (found := codec.read_kept(path, Prediction)):
                known[number][rank] = found
            else:
                waiting.append(_Waiting(number, job, path, like=first_like(cell, rank, counted)))
    missing = Counter(one.number for one in waiting)

    def done(one: _Waiting, prediction: Prediction | Failure) -> Iterator[tuple[int, Prediction | Failure]]:
        known[one.number][one.job.rank] = prediction
        if one.path and isinstance(prediction, Prediction) and prediction.outcome != "unsupported":
            codec.keep(one.path, prediction)
        missing[one.number] -= 1
        yield from whole(one.number)

    def whole(number: int) -> Iterator[tuple[int, Prediction | Failure]]:
        if not missing[number]:
            yield number, _of_all_ranks([one for _, one in sorted(known[number].items())], cells[number], catalog)

    for number in range(len(cells)):
        yield from whole(number)
    traced = {(one.number, one.job.rank) for one in waiting}
    for one in waiting:  # a first rank that was cached has no digest any more
        one.like = one.like if (one.number, one.like) in traced else None
    setups: dict[tuple[int, int | None], str] = {}
    unlike = []
    first = [one.job if one.like is None else msgspec.structs.replace(one.job, steps=0) for one in waiting]
    probes: list[tuple[_Waiting, str]] = []
    for index, result in trace_each(first, tracer.processes, tracer) if first else ():
        one = waiting[index]
        if isinstance(result, Trace) and one.like is not None:
            probes.append((one, result.setup))
            continue
        if isinstance(result, Trace):
            setups[one.number, one.job.rank] = result.setup
        yield from done(one, _predicted(cells[one.number], one.job.rank, result))
    for one, setup in probes:
        alike = known[one.number][one.like or 0]
        if setup == setups.get((one.number, one.like)) and isinstance(alike, Prediction):
            peaks = {one.job.rank: alike.peak_bytes}
            yield from done(one, msgspec.structs.replace(alike, rank=one.job.rank, ranks=peaks, seconds=0.0))
        else:
            unlike.append(one)
    for index, result in trace_each([one.job for one in unlike], tracer.processes, tracer) if unlike else ():
        one = unlike[index]
        yield from done(one, _predicted(cells[one.number], one.job.rank, result))


def firsts_of(cell: Cell) -> list[int]:
    """The first rank of each stage that ranks_of has: another's share of what is sharded is nearly the same."""
    layout = cell.layout
    return [rank for rank in ranks_of(cell) if not rank % layout.stage_ranks]


def is_kept(cell: Cell, catalog: Catalog, padded: bool) -> bool:
    """Whether the predictions of all ranks to trace are in the cache."""
    paths = [kept_at(job_of(cell, rank, catalog, padded)) for rank in ranks_of(cell)]
    return all(path and path.exists() for path in paths)


@dataclass
class _Waiting:
    """A rank of a cell that has no prediction yet. ``like`` is the rank that does the same if its setup is the same."""

    number: int
    job: TraceJob
    path: Path | None
    like: int | None = None


def first_like(cell: Cell, rank: int, counted: bool) -> int | None:
    """The first rank of the stage, if this one does the same with parts of the same shapes.

    Engines that shard parameters treat all ranks alike: each gathers everything and keeps one part. If parts have
    equal shapes, so has all else. ZeRO 1 and 2 do not: a rank's gradients are ready early or late in backward.
    """
    layout = cell.layout
    width = layout.stage_ranks
    alike = "parameters" in cell.strategy.engine.shards and layout.tensor == 1
    return rank // width * width if alike and rank % width and not counted else None


def _predicted(cell: Cell, rank: int, result: Trace | Failure) -> Prediction | Failure:
    """The prediction from a trace; a refusal is one too."""
    if isinstance(result, Trace):
        return summarize(cell, rank, result)
    return unsupported(cell, result.message) if result.kind == "unsupported" else result


def ranks_of(cell: Cell) -> list[int]:
    """The ranks to trace: the first rank of a pipeline stage, and the last if something is sharded, since its share
    differs. All others of a stage do the same. The stages are the first, the second and the last: those between have
    the layers of the second, and no more micro-batches in flight.
    """
    layout = cell.layout
    if PROCESSES[cell.strategy.engine.process].compiled:
        return [0]  # all run one program
    width = layout.stage_ranks
    inside = {0, width - 1} if cell.strategy.engine.shards else {0}
    stages = {0, min(1, layout.pipeline - 1), layout.pipeline - 1}
    return sorted(stage * width + rank for stage in stages for rank in inside)


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


def trace_snapshot(cell: Cell, rank: int, catalog: Catalog, padded: bool) -> bytes:
    """What the rank would allocate, as a file with a memory snapshot in torch's format. Raises TraceFailed."""
    ((_, trace),) = trace_each([job_of(cell, rank, catalog, padded, counted=False)], 1)
    if isinstance(trace, Failure):
        raise TraceFailed(cell.id, trace)
    labels = [locate(*label.split("\t")) if "\t" in label else label for label in trace.labels]
    events = [(storage, size, labels[label]) for storage, size, label, stream in trace.events if stream != HOST]
    marks = {number: Mark(mark.phase, mark.named) for number, mark in enumerate(trace.marks)}
    return pickled(make_snapshot(events, marks))


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


def _of_all_ranks(found: Sequence[Prediction | Failure], cell: Cell, catalog: Catalog) -> Prediction | Failure:
    """That of the rank that needs most, with every rank's peak and folded counts; or why one failed."""
    ranks = [one for one in found if isinstance(one, Prediction)]
    if len(ranks) < len(found):
        return next(one for one in found if isinstance(one, Failure))
    fullest = max(ranks, key=lambda one: (one.outcome == "unsupported", one.smallest_bytes, one.peak_bytes))
    peaks = {rank: size for one in ranks for rank, size in one.ranks.items()}
    layout = cell.layout
    width, last = layout.stage_ranks, layout.pipeline - 1
    folds = {metric.name: metric.fold for metric in catalog.metrics(cell.strategy.engine.process)}
    readings = {}
    for name in fullest.readings:
        if any(name not in one.readings for one in ranks):
            continue  # a rank could not count it
        if folds[name] == "sum":  # the first rank counts for its whole stage, the second stage for all between
            firsts = [one for one in ranks if one.rank % width == 0]
            alike = [last - 1 if 0 < first.rank // width < last else 1 for first in firsts]
            readings[name] = _summed([first.readings[name] for first in firsts], alike)
        else:
            readings[name] = max((one.readings[name] for one in ranks), key=lambda reading: reading.value)
    return msgspec.structs.replace(fullest, ranks=peaks, readings=readings)


def _summed(readings: Sequence[Reading], times: Sequence[int]) -> Reading:
    """The sum of the readings, each taken so many times."""
    parts, suspects = Counter[str](), Counter[str]()
    for reading, number in zip(readings, times, strict=True):
        parts.update({name: number * part for name, part in reading.parts.items()})
        suspects.update({name: number * part for name, part in reading.suspects.items()})
    value = sum(number * reading.value for reading, number in zip(readings, times, strict=True))
    return Reading(value=value, parts=parts, suspects=suspects)


def unsupported(cell: Cell, reason: str) -> Prediction:
    """The placeholder for a cell that cannot be predicted."""
    return Prediction(format=FORMAT, cell=cell.id, outcome="unsupported", reason=reason, world_size=cell.layout.ranks)
