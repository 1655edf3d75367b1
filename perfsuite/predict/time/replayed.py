"""A cell's step from a trace of its own code: the trace, its costs on the cell's device, and the step as spans."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.errors import Refused
from perfsuite.predict.time.cells import UNKNOWN_STACK
from perfsuite.predict.time.constants import Constants, constants_of, machine_of
from perfsuite.predict.time.layer import Rates
from perfsuite.predict.time.setup import Machine
from perfsuite.predict.time.shape import shape_of
from perfsuite.predict.time.traced import Replayed, replay
from perfsuite.predict.untraceable import why_not_traced
from perfsuite.records import chrome
from perfsuite.records.chrome import MICRO
from perfsuite.trace.tracing import TraceFailed, Tracer, job_of
from perfsuite.wire.failure import Failure
from perfsuite.wire.trace import Trace

SINGLE_PRECISION = ("fp32", "tf32")  # techniques: the constants are of half precision
IN_LAYERS = ("forward", "backward")


@dataclass(frozen=True)
class Costs:
    """What the operations of a trace are paid with. ``launch`` are the host's seconds for all layers of a step."""

    machine: Machine
    constants: Constants
    rates: Rates
    launch: float


def costs_of(cell: Cell) -> Costs:
    """The costs of a cell's device, those of the closed form. Raises Refused for a cell that a replay cannot say."""
    device, engine = cell.hardware.device, cell.strategy.engine
    if device is None:
        raise Refused(f"{cell.id} is on a CPU: `perfsuite calibrate --predict {cell.id}` predicts its step.")
    if engine.dimension == "pipeline":
        raise Refused(f"{cell.id} has stages that wait for one another, and one rank's trace does not say how long.")
    for choice in cell.strategy.choices:
        if choice.technique.name in SINGLE_PRECISION:
            raise Refused(f"{cell.id} computes in {choice.technique.name}, and only half precision has costs: +bf16.")
    if reason := why_not_traced(cell):
        raise Refused(f"{cell.id} cannot be traced: {reason}")
    machine, constants = machine_of(device, node=cell.hardware.ranks), constants_of(device, UNKNOWN_STACK)
    launch = constants.launch_layer * shape_of(cell.model).layers
    return Costs(machine, constants, Rates.of(machine, constants), launch)


def trace_step(cell: Cell, catalog: Catalog, padded: bool = True, tracer: Tracer | None = None) -> Trace:
    """A trace of the cell's first rank with a timed step; ``tracer`` is a process that already traces.

    Raises TraceFailed.
    """
    with contextlib.nullcontext(tracer) if tracer else Tracer(1) as one:
        ((_, found),) = one.round([job_of(cell, 0, catalog, padded, timed=True)])
    if isinstance(found, Failure):
        raise TraceFailed(cell.id, found)
    return found


def replay_trace(trace: Trace, costs: Costs, micro_batches: int = 1, launched: bool = True) -> Replayed:
    """The timed step. The host's time for all layers is spread over the operations of forward and backward."""
    phase, count = "", 0
    for kind, label, _, _ in trace.operations:
        phase = trace.labels[label] if kind == "phase" else phase
        count += phase in IN_LAYERS and kind not in ("phase", "record", "wait", "sync")
    launch = costs.launch * micro_batches / max(1, count) if launched else 0.0
    return replay(trace.operations, costs.rates, costs.machine.host_bandwidth, launch)


def write_spans(path: Path, title: str, trace: Trace, found: Replayed) -> None:
    """Write the step as a Chrome trace: a thread for each stream, a slice for each operation. Raises FileError."""
    events = chrome.name_process(0, title)
    for order, stream in enumerate(sorted({one.stream for one in found.placed})):
        sends = any(one.stream == stream and one.kind not in ("matmul", "kernel") for one in found.placed)
        name = f"stream {stream}" if stream < 1000 or not sends else f"messages of group {stream - 1000}"
        events += chrome.name_thread(0, stream, name, order)
    for one in found.placed:
        operator, _, module = trace.labels[one.name].partition("\t")
        told = {"module": module, "phase": trace.labels[one.phase], "cost": one.kind}
        events.append(chrome.span(0, one.stream, operator, one.begin * MICRO, one.seconds * MICRO, told, one.kind))
    chrome.write(path, events)
