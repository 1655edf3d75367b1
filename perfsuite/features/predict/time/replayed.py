"""A cell's step from a trace of its own code: the trace, its costs on the cell's device, and the step as spans."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.predict.time.cell_steps import UNKNOWN_STACK, layout_of
from perfsuite.features.predict.time.constants import Constants, constants_of, machine_of
from perfsuite.features.predict.time.setup import MachineSetup
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.traced import Replayed, together
from perfsuite.features.predict.time.work import Rates
from perfsuite.features.predict.trace.tracing import MemoryTracer, TraceFailed, job_of
from perfsuite.features.predict.trace_records import Trace
from perfsuite.features.predict.untraceable import why_no_operators
from perfsuite.rank.recipe import recipe_of
from perfsuite.records import chrome
from perfsuite.records.chrome import MICRO
from perfsuite.records.failure import Failure

SINGLE_PRECISION = ("fp32", "tf32")  # techniques: the constants are of half precision
HALF = {"bfloat16": "bf16", "float16": "fp16"}  # torch's names to those of Device.dense_flops
IN_LAYERS = ("forward", "backward")


@dataclass(frozen=True)
class Costs:
    """What the operations of a trace are paid with. ``launch`` are a host's seconds for a rank's layers of a step."""

    machine: MachineSetup
    constants: Constants
    rates: Rates
    launch: float


def costs_of(cell: Cell) -> Costs:
    """The costs of a cell's device, those of the closed form. Raises Refused for a cell that a replay cannot say."""
    device = cell.hardware.device
    if reason := why_no_operators(cell):
        raise Refused(f"{cell.id} has no predicted step: {reason}")
    if device is None:
        raise Refused(f"{cell.id} is on a CPU, which no replay has costs of: `perfsuite time {cell.id} --predict`.")
    for choice in cell.strategy.choices:
        if choice.technique.name in SINGLE_PRECISION:
            raise Refused(f"{cell.id} computes in {choice.technique.name}, and only half precision has costs: +bf16.")
    precision = HALF[recipe_of(cell.strategy).compute_dtype]
    if precision not in device.dense_flops:
        known = " or ".join(name for name in HALF.values() if name in device.dense_flops)
        raise Refused(
            f"{cell.id} has no predicted step: none is known for {precision} on {device.name}. It has {known}."
        )
    machine, constants = machine_of(device, node=cell.hardware.ranks), constants_of(device, UNKNOWN_STACK)
    launch = constants.launch_layer * shape_of(cell.model).layers / layout_of(cell).pipeline
    return Costs(machine, constants, Rates.of(machine, constants), launch)


def traced_ranks(cell: Cell) -> list[int]:
    """The ranks whose traces a replay needs: the first of each pipeline stage."""
    layout = layout_of(cell)
    return [stage * layout.stage_ranks for stage in range(layout.pipeline)]


def trace_step(
    cell: Cell, catalog: Catalog, padded: bool = True, tracer: MemoryTracer | None = None
) -> dict[int, Trace]:
    """Traces with a timed step, by rank; ``tracer`` is a process that already traces.

    Raises TraceFailed.
    """
    found = {}
    with contextlib.nullcontext(tracer) if tracer else MemoryTracer(1) as one:
        for rank in traced_ranks(cell):
            job = msgspec.structs.replace(job_of(cell, rank, catalog, padded), timed=True)
            ((_, trace),) = one.round([job])
            if isinstance(trace, Failure):
                raise TraceFailed(cell.id, trace)
            found[rank] = trace
    return found


def replay_traces(
    traces: Mapping[int, Trace], costs: Costs, micro_batches: int = 1, launched: bool = True
) -> dict[int, Replayed]:
    """The timed step of all ranks. The host's time for layers is spread over what forward and backward issue."""
    operations = {rank: trace.operations for rank, trace in traces.items()}
    launch = 0.0
    if launched:
        count = max(map(_issued, traces.values()))
        launch = costs.launch * micro_batches / max(1, count)
    return together(operations, costs.rates, costs.machine.host_bandwidth, launch)


def _issued(trace: Trace) -> int:
    """How many operations the host issues in forward and backward."""
    phase, count = "", 0
    for kind, label, _, _ in trace.operations:
        phase = trace.labels[label] if kind == "phase" else phase
        count += phase in IN_LAYERS and kind not in ("phase", "record", "wait", "sync")
    return count


def slowest(found: Mapping[int, Replayed]) -> Replayed:
    """The rank with the most to do: the others wait for it."""
    return max(found.values(), key=lambda one: one.compute)


def seconds_of(found: Mapping[int, Replayed]) -> float:
    """Seconds of the step: until all ranks have ended."""
    return max(one.total for one in found.values())


def write_spans(path: Path, title: str, traces: Mapping[int, Trace], found: Mapping[int, Replayed]) -> None:
    """Write the step as a Chrome trace: a process for each rank, a thread for each stream, a slice for each operation.

    Raises FileError.
    """
    events: list[dict[str, Any]] = []
    for rank, trace in traces.items():
        events += _spans(rank, f"{title}, rank {rank}" if len(traces) > 1 else title, trace, found[rank])
    chrome.write(path, events)


def _spans(rank: int, title: str, trace: Trace, found: Replayed) -> list[dict[str, Any]]:
    """The events of one rank."""
    events = chrome.name_process(rank, title)
    for order, stream in enumerate(sorted({one.stream for one in found.placed})):
        sends = any(one.stream == stream and one.kind not in ("matmul", "kernel") for one in found.placed)
        name = f"stream {stream}" if stream < 1000 or not sends else f"messages of group {stream - 1000}"
        events += chrome.name_thread(rank, stream, name, order)
    for one in found.placed:
        operator, _, module = trace.labels[one.name].partition("\t")
        facts = {"module": module, "phase": trace.labels[one.phase], "cost": one.kind}
        events.append(chrome.span(rank, one.stream, operator, one.begin * MICRO, one.seconds * MICRO, facts, one.kind))
    return events
