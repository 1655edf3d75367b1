"""The memory of a deep model, estimated from traces of two shallow ones: equal layers are traced once.

A layer more allocates the same again, so the bytes alive at an event that both traces have, counted from the beginning
or the end of its phase, are a linear function of the number of layers. The peak is the largest of these functions.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Estimate
from perfsuite.features.predict.trace.tracing import MemoryTracer, job_of, kept_at, trace_each
from perfsuite.features.predict.trace_records import HOST, Trace
from perfsuite.features.predict.trace_summary import beside, host_bytes, placed
from perfsuite.features.predict.traced_ranks import firsts_of
from perfsuite.records import codec
from perfsuite.records.failure import Failure

DEPTHS = ("num_layers", "num_decoder_layers", "num_hidden_layers", "n_layer")  # in configs of transformers
SHALLOW = (3, 5)  # layers of a stage: FSDP and ZeRO-3 gather ahead, so the first and the last layers are unlike others
_DIGITS = re.compile(r"\d+")


def depth_of(model: Model) -> int:
    """The layers of each stack of a model from transformers; 0 if its config does not say it in one number."""
    found = {model.config[name] for name in DEPTHS if name in model.config}
    return found.pop() if len(found) == 1 and model.build.startswith("perfsuite.") else 0


def with_depth(cell: Cell, layers: int) -> Cell:
    """The cell with so many layers. Its number of parameters is not known."""
    config = dict(cell.model.config) | {name: layers for name in DEPTHS if name in cell.model.config}
    return dataclasses.replace(cell, model=dataclasses.replace(cell.model, config=config, parameters=0))


def shallow(cell: Cell) -> tuple[int, int] | None:
    """The numbers of layers to trace; None if the model is not deeper, or its stages are not alike."""
    stages = cell.layout.pipeline * cell.strategy.engine.chunks
    depth = depth_of(cell.model)
    if depth % stages or depth <= SHALLOW[-1] * stages:
        return None
    return SHALLOW[0] * stages, SHALLOW[1] * stages


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of a traced step: its allocations and releases, as (bytes, what allocated them), and the bytes alive on
    the device before the first and after each of them.
    """

    name: str
    events: list[tuple[int, str]]
    live: list[int]


def phases_of(trace: Trace) -> list[Phase]:
    """The phases of a trace from its first batch on, of the device's memory."""
    labels = [_DIGITS.sub("", label) for label in trace.labels]
    found: list[Phase] = []
    alive = 0
    for storage, size, label, stream in trace.events:
        if storage == -1:
            name = trace.marks[size].phase
            if found or name == "batch":
                found.append(Phase(name, [], [alive]))
        elif size and stream != HOST:
            alive += size
            if found:
                found[-1].events.append((size, labels[label]))
                found[-1].live.append(alive)
    return found


def peak_at(growth: float, first: Sequence[Phase], second: Sequence[Phase]) -> int:
    """The most bytes alive if a model is deeper than the first by ``growth`` times what the second is."""
    pairs = [pair for few, many in zip(first, second, strict=True) for pair in _alike(few, many)]
    return round(max(few + (many - few) * growth for few, many in pairs))


def _alike(few: Phase, many: Phase) -> Iterator[tuple[int, int]]:
    """The bytes alive in both at the same event, and the most in the phase, wherever that was."""
    yield max(few.live), max(many.live)
    yield few.live[0], many.live[0]
    for number, (one, other) in enumerate(zip(few.events, many.events, strict=False), 1):
        if one != other:
            break
        yield few.live[number], many.live[number]
    for number, (one, other) in enumerate(zip(few.events[::-1], many.events[::-1], strict=False), 1):
        yield few.live[-number], many.live[-number]
        if one != other:
            break


def estimate_each(
    cells: Sequence[Cell], catalog: Catalog, tracer: MemoryTracer, padded: bool, fresh: bool
) -> Iterator[tuple[int, Estimate | Failure]]:
    """The number of every cell with its estimate as soon as it is known, from the cache unless ``fresh``.

    All cells have shallow ones.
    """
    turns: list[tuple[int, tuple[int, int, int]]] = []
    paths = [_kept_at(cell, catalog, padded) for cell in cells]
    for number, cell in enumerate(cells):
        path, depths = paths[number], shallow(cell)
        if path and not fresh and (kept := codec.read_kept(path, Estimate)):
            yield number, kept
            continue
        assert depths, cell.id
        for rank in firsts_of(cell):
            # The deeper model repeats the other one's operators, so its turn is when that one has probably ended.
            turns += [(number + tracer.processes * late, (number, rank, depths[late])) for late in (0, 1)]
    places = [place for _, place in sorted(turns, key=lambda turn: turn[0])]
    jobs = [job_of(with_depth(cells[number], layers), rank, catalog, padded) for number, rank, layers in places]
    waiting = [sum(place[0] == number for place in places) for number in range(len(cells))]
    found: dict[int, dict[int, dict[int, Trace]]] = defaultdict(lambda: defaultdict(dict))
    for index, result in trace_each(jobs, tracer.processes, tracer) if jobs else ():
        number, rank, layers = places[index]
        if isinstance(result, Failure):
            if waiting[number] > 0:
                yield number, result
            waiting[number] = 0  # the others of this cell change nothing
            continue
        found[number][rank][layers] = result
        waiting[number] -= 1
        if not waiting[number]:
            ranks = [_estimated(cells[number], traces) for traces in found.pop(number).values()]
            fullest = max(ranks, key=lambda one: one.needed_bytes)
            estimate = msgspec.structs.replace(fullest, seconds=sum(one.seconds for one in ranks))
            if path := paths[number]:
                codec.keep(path, estimate)
            yield number, estimate


def _kept_at(cell: Cell, catalog: Catalog, padded: bool) -> Path | None:
    """The file for the estimate of a cell; None if the user's own code takes part."""
    path = kept_at(job_of(cell, 0, catalog, padded))
    return path and path.parents[1] / "estimates" / path.name


def _estimated(cell: Cell, traces: Mapping[int, Trace]) -> Estimate:
    """The estimate for one rank, from its traces by their number of layers."""
    low, high = sorted(traces)
    few, many = traces[low], traces[high]
    growth = (depth_of(cell.model) - low) / (high - low)
    live = peak_at(growth, phases_of(few), phases_of(many))
    allocator, smallest = placed(many)
    device = cell.hardware.device
    assert device, cell.id
    # The allocator loses in a few segments, which layers share: as much in a deep model as in a shallow one.
    needed = live + smallest - allocator.allocated_peak + sum(beside(cell).values())
    on_host = [host_bytes(cell, one) for one in (few, many)]
    return Estimate(
        cell=cell.id,
        outcome="fits" if needed <= device.usable_bytes else "oom",
        world_size=cell.hardware.world_size,
        needed_bytes=needed,
        capacity_bytes=device.usable_bytes,
        host_bytes=round(on_host[0] + (on_host[1] - on_host[0]) * growth),
        layers=(low, high),
        seconds=few.seconds + many.seconds,
    )
