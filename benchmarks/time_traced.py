"""The two front ends of the step's time compared: the trace of the engine's code, and the closed form.

python benchmarks/time_traced.py    # writes docs/data/time/traced.csv; traces for some minutes

Both have the same costs. The trace has the operators that the code issues, and what waits for what. The closed form
gets perfect overlap here, and no time of the host, since the trace knows neither contention nor the host.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from result_tables import write_table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.time.cell_steps import setup_of
from perfsuite.features.predict.time.replayed import costs_of, replay_traces, seconds_of, slowest, trace_step
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.step import Breakdown, step
from perfsuite.features.predict.time.traced import KERNELS
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.trace_records import Trace

COLUMNS = ("cell", "operations", "kernels", "messages", "exposed", "step", "off")
CELLS = (
    "gpt_1b7-single+bf16+nodrop-a100_80g_x1",
    "gpt_1b7-single+bf16+nodrop+ckpt-a100_80g_x1",
    "gpt_1b7-single+bf16+nodrop+adamw_fused-h100_x1",
    "gpt_1b7-ddp+bf16+nodrop-a100_80g_x8",
    "gpt_1b7-zero1+bf16+nodrop-a100_80g_x8",
    "gpt_1b7-zero3+bf16+nodrop-h100_x8",
    "gpt_1b7-fsdp2+bf16+nodrop-a100_80g_x8",
    "llama_1b-single+bf16-h100_x1",
    "llama_1b-zero3+bf16-a100_80g_x8",
    "llama_1b-fsdp2+bf16-h100_x8",
    "llama_1b-tp+bf16-h100_x8",
    "gpt_1b7-pp_gpipe+acc8+bf16+nodrop-a100_80g_x4",
    "gpt_1b7-pp_1f1b+acc8+bf16+nodrop-a100_80g_x4",
    "gpt_1b7-pp_interleaved+acc8+bf16+nodrop-a100_80g_x4",
)
MESSAGES = ("tensor", "sends", "gathers", "data")


@dataclass(frozen=True)
class Compared:
    """Seconds of (closed form, trace): kernels, messages whether hidden or not, exposed messages, and the step."""

    cell: str
    compute: tuple[float, float]
    messages: tuple[float, float]
    exposed: tuple[float, float]
    step: tuple[float, float]
    operations: int

    @property
    def error(self) -> float:
        """The closed form's step by the trace's, less 1."""
        return self.step[0] / self.step[1] - 1


def compare(cell: Cell, traces: dict[int, Trace]) -> Compared:
    """Both front ends for a cell, with the same costs."""
    costs = costs_of(cell)
    shape, setup = shape_of(cell.model), setup_of(cell, padded=False)

    def closed(overlap: float) -> Breakdown:
        constants = dataclasses.replace(costs.constants, overlap=overlap, launch_layer=0.0)
        return step(shape, setup, costs.machine, constants)

    def sent(found: Breakdown) -> float:
        return sum(getattr(found, name) for name in MESSAGES)

    hidden, shown = closed(1.0), closed(0.0)
    found = replay_traces(traces, costs, launched=False)
    replayed, total = slowest(found), seconds_of(found)
    busy = sum(seconds for kind, seconds in replayed.busy().items() if kind not in KERNELS)
    return Compared(
        cell.id,
        (hidden.compute + hidden.optimizer, replayed.compute),
        (sent(shown), busy),
        (sent(hidden) + hidden.bubble, total - replayed.compute),
        (hidden.total, total),
        sum(len(trace.operations) for trace in traces.values()),
    )


def compared() -> Iterator[Compared]:
    """Every cell, its batches without padding, so that attention has no mask in either form."""
    catalog = Catalog(())
    with MemoryTracer(1) as tracer:
        for name in CELLS:
            cell = parse_cell(name, catalog)
            yield compare(cell, trace_step(cell, catalog, padded=False, tracer=tracer))
            print(name, file=sys.stderr, flush=True)


def row(one: Compared) -> tuple[str, ...]:
    """A cell's row: each pair is "closed form / trace", in milliseconds."""
    pairs = (one.compute, one.messages, one.exposed, one.step)
    told = (f"{closed * 1e3:,.1f} / {traced * 1e3:,.1f}" for closed, traced in pairs)
    return one.cell, f"{one.operations:,}", *told, f"{one.error * 100:+.1f} %"


if __name__ == "__main__":
    write_table("time/traced", COLUMNS, map(row, compared()))
