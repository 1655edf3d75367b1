"""The two front ends of the step's time compared: the trace of the engine's code, and the closed form.

python benchmarks/time_traced.py    # writes docs/time_traced.md; traces for some minutes

Both have the same costs. The trace has the operators that the code issues, and what waits for what. The closed form
gets perfect overlap here, and no time of the host, since the trace knows neither contention nor the host.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell, parse_cell
from perfsuite.predict.time.cells import setup_of
from perfsuite.predict.time.replayed import costs_of, replay_trace, trace_step
from perfsuite.predict.time.shape import shape_of
from perfsuite.predict.time.step import Breakdown, step
from perfsuite.predict.time.traced import KERNELS
from perfsuite.records.codec import write_bytes
from perfsuite.trace.tracing import Tracer
from perfsuite.wire.trace import Trace

OUT = Path(__file__).parents[1] / "docs" / "time_traced.md"
LIMIT = 0.03
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


def compare(cell: Cell, trace: Trace) -> Compared:
    """Both front ends for a cell, with the same costs."""
    costs = costs_of(cell)
    shape, setup = shape_of(cell.model), setup_of(cell)

    def closed(overlap: float) -> Breakdown:
        constants = dataclasses.replace(costs.constants, overlap=overlap, launch_layer=0.0)
        return step(shape, setup, costs.machine, constants)

    def sent(found: Breakdown) -> float:
        return sum(getattr(found, name) for name in MESSAGES)

    hidden, shown = closed(1.0), closed(0.0)
    replayed = replay_trace(trace, costs, launched=False)
    busy = sum(seconds for kind, seconds in replayed.busy().items() if kind not in KERNELS)
    return Compared(
        cell.id,
        (hidden.compute + hidden.optimizer, replayed.compute),
        (sent(shown), busy),
        (sent(hidden), replayed.total - replayed.compute),
        (hidden.total, replayed.total),
        len(trace.operations),
    )


def compared() -> Iterator[Compared]:
    """Every cell, its batches without padding: the closed form knows no mask."""
    catalog = Catalog(())
    with Tracer(1) as tracer:
        for name in CELLS:
            cell = parse_cell(name, catalog)
            yield compare(cell, trace_step(cell, catalog, padded=False, tracer=tracer))
            print(name, file=sys.stderr, flush=True)
