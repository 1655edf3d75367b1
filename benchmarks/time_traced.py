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

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.time.cell_steps import setup_of
from perfsuite.features.predict.time.replayed import costs_of, replay_traces, seconds_of, slowest, trace_step
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.step import Breakdown, step
from perfsuite.features.predict.time.traced import KERNELS
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.trace_records import Trace
from perfsuite.records.codec import write_bytes

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


HEAD = """# Step times from traces, and in closed form

Written by `python benchmarks/time_traced.py`. Nothing was measured.

A trace lists every operator, collective, stream and event that the engine's code issues under fake tensors. A replay
pays each with the costs of the closed form. So overlap comes from the code. `perfsuite time CELL --tokens N
--predict` prints the step of a cell in this way, and `--trace step.json` writes it for <https://ui.perfetto.dev>.

In this table the closed form has perfect overlap, and neither form has the host's time. Batches have no padding. Each
pair is "closed form / trace", in milliseconds. "Exposed" is when no kernel runs, in a pipeline's fullest stage with the
bubble. "Off" is the closed form's step by the trace's, less 1. A pipeline has a trace for each stage. A message begins
when both of its stages are there.

"""
NOTES = """
## Where they differ

- Second gathers. DeepSpeed keeps up to half a billion gathered elements until backward. The closed form gathers all
  parameters again, but mostly while it computes.
- The ends of the step. The last bucket, and the first gather, have nothing to hide them. The closed form hides them.
- Small kernels. Masks and the last norm are in the trace alone.

## What the comparison has corrected

The first comparison found these faults of the closed form of cells. The code was right each time:

- ZeRO 1 and 2 do not overlap the reduction of gradients: DeepSpeed's `overlap_comm` is off below stage 3.
- torch's AdamW moves 80 bytes per parameter, since it is eight kernels. Megatron's moves 40.
- On Hopper, torch selects cuDNN's attention if nothing is dropped.
- Tensor parallelism in transformers has five all-reduces per layer of Llama in backward, in fp32 under autocast. It
  also gathers all logits.
- The norms and rotary embedding of Llama in transformers are chains of kernels.
- A pipeline's stage gets its mask as a tensor. So torch's attention also computes what a causal mask leaves out.
- With several micro-batches, gradients are added in fp32: 12 bytes per parameter each time.
- The gradient of an embedding is dense. With a tied head two such gradients are added.
- A Llama in transformers multiplies queries, keys, values and gate apart.
- ZeRO-3 gathers each matrix in a message of its own, and after the step each norm and bias.
- Gathered logits are joined by a copy.

## What neither knows

- Messages slow the kernels that run at the same time. The closed form's fitted overlap has that; a replay does not. So
  `perfsuite fit` predicts longer steps where messages hide, and `perfsuite time --predict` prints by how much.
- The host. A replay spreads its time over the operations of forward and backward, and messages wait for it too. The
  closed form compares it with the whole micro-batch.
- Kernels on two streams share the memory. The replay lets each have all of it.
- A softmax over a large vocabulary reads its input more than once.
- Attention with a mask of padding is priced as its shape says, full or causal.
"""


def write(found: list[Compared]) -> None:
    """The table of all cells."""
    rows = ["| cell | operations | kernels | messages | exposed | step | off |", "|---|---|---|---|---|---|---|"]
    for one in found:
        pairs = (one.compute, one.messages, one.exposed, one.step)
        told = " | ".join(f"{closed * 1e3:,.1f} / {traced * 1e3:,.1f}" for closed, traced in pairs)
        rows.append(f"| `{one.cell}` | {one.operations:,} | {told} | {one.error * 100:+.1f} % |")
    near = sum(abs(one.error) <= LIMIT for one in found)
    said = f"\n{near} of {len(found)} cells are within {LIMIT * 100:.0f} %.\n"
    write_bytes(OUT, (HEAD + "\n".join(rows) + "\n" + said + NOTES).encode())


if __name__ == "__main__":
    write(list(compared()))
