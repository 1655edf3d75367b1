"""Predicted memory against that of emulated GPUs, where torch's own allocator counts. Writes docs/memory_emulated.md.

    perfsuite emulate --gpus h100:2 -- python benchmarks/memory_emulated.py            # all cells, about half an hour
    perfsuite emulate --gpus h100:2 -- python benchmarks/memory_emulated.py CELL …     # these, without writing the page
    python benchmarks/memory_emulated.py                                               # the page from what was measured

Every measured cell is a line of docs/memory_emulated.jsonl, and is not measured again: remove the line for that.
Exit code 1 if live tensors differ by more than 0.05 % without a reason below, or a cell fails.
"""

import os
import sys
from pathlib import Path

import msgspec

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell, parse_cell
from perfsuite.measure.runner import Runner, Settings
from perfsuite.predict.memory import attempt
from perfsuite.records.codec import write_bytes
from perfsuite.records.prediction import Prediction
from perfsuite.wire.failure import Failure
from perfsuite.wire.record import Record

MOST = 5e-4  # of the live tensors
DOCS = Path(__file__).parents[1] / "docs"
LINES, PAGE = DOCS / "memory_emulated.jsonl", DOCS / "memory_emulated.md"
ENGINES = """
gpt2_tiny-single gpt2_tiny-single+bf16 gpt2_tiny-single+bf16+ckpt t5_tiny-single+bf16 t5_tiny-single+pure_bf16
t5_tiny-single t5_tiny-single+fp16 bloom_tiny-single+bf16 llama_tiny-single+bf16 llama_tiny-single+pure_bf16
gpt2_tiny-ddp+bf16 gpt2_tiny-fsdp1+bf16 gpt2_tiny-fsdp2+bf16 gpt2_tiny-zero1+bf16 gpt2_tiny-zero2+bf16
gpt2_tiny-zero3+bf16 llama_tiny-tp+bf16 llama_tiny-autotp+bf16 gpt2_tiny_l4-pp_naive+bf16
gpt2_tiny_l4-pp_gpipe+acc4+bf16 gpt2_tiny_l4-pp_1f1b+acc4+bf16 gpt2_tiny_l4-pp_interleaved+acc4+bf16
gpt2_tiny-single+adamw_fused gpt2_tiny-single+adamw_loop gpt2_tiny-single+adafactor gpt2_tiny-single+adamw8bit
gpt2_tiny-single+adamw8bit_ao gpt2_tiny-single+adamw4bit_ao gpt2_tiny-single+sgd gpt2_tiny-single+sgd_momentum
gpt2_tiny-single+nodrop+bf16 gpt2_tiny-single+eager+bf16 gpt2_tiny-single+acc4+bf16 gpt2_tiny-single+clip+bf16
gpt2_tiny-single+lora+bf16 gpt2_tiny-single+prune gpt2_tiny-single+ckpt_selective+bf16
gpt2_tiny-single+ckpt_offload+bf16 gpt2_tiny-single+accelerate+bf16 gpt2_tiny-zero2+bf16+offload_optimizer
gpt2_tiny-zero3+bf16+offload gpt2_tiny-fsdp2+bf16+offload
gpt2_tiny-ddp gpt2_tiny-fsdp1 gpt2_tiny-fsdp2 gpt2_tiny-zero1 gpt2_tiny-zero2 gpt2_tiny-zero3
gpt2_tiny-single+fp16 gpt2_tiny-single+pure_bf16 bloom_tiny-single bloom_tiny-single+pure_bf16 llama_tiny-single
llama_tiny-fsdp2+bf16+ckpt llama_tiny-tp llama_tiny-autotp bloom_tiny-zero1+bf16 bloom_tiny-fsdp2+bf16
t5_tiny-ddp+bf16 t5_tiny-fsdp2+bf16 t5_tiny-zero2+bf16 t5_tiny-zero3+bf16 t5_tiny-single+bf16+ckpt
gpt2_small-single+bf16 t5_base-single+bf16 bloom_560m-single+bf16
""".split()  # noqa: SIM905
ALONE = ("single",)
CELLS = [f"{one}-h100_x{1 if one.split('-')[1].split('+')[0] in ALONE else 2}" for one in ENGINES]


class Line(Record, frozen=True, kw_only=True):
    """What one emulated cell measured: the fullest rank's bytes at the peak, and why there are none."""

    cell: str
    failed: str
    peak_bytes: int
    parts: dict[str, int]
    reserved_bytes: int
    versions: dict[str, str]


def known() -> dict[str, Line]:
    """The lines of earlier runs by cell."""
    if not LINES.exists():
        return {}
    lines = [msgspec.json.decode(line, type=Line) for line in LINES.read_bytes().splitlines()]
    return {line.cell: line for line in lines}


def measure(runner: Runner, cell: Cell) -> Line:
    """Run the cell on emulated GPUs."""
    run = runner.measure(cell)
    if run.failure:
        reason = run.failure.message.splitlines()[0]
        return Line(cell=cell.id, failed=reason, peak_bytes=0, parts={}, reserved_bytes=0, versions=run.versions)
    peak = run.readings["peak_memory_bytes"]
    return Line(
        cell=cell.id,
        failed="",
        peak_bytes=int(peak.value),
        parts=peak.parts,
        reserved_bytes=int(run.readings["reserved_memory_bytes"].value),
        versions=run.versions,
    )


def difference(line: Line, prediction: Prediction) -> str:
    """The categories in which the two differ, largest first."""
    names = line.parts.keys() | prediction.parts.keys()
    apart = {name: prediction.parts.get(name, 0) - line.parts.get(name, 0) for name in names}
    moved = sorted((name for name in names if apart[name]), key=lambda name: (-abs(apart[name]), name))
    return ", ".join(f"{name.replace('_', ' ')} {apart[name]:+,}" for name in moved[:3])


def main() -> int:
    """Measure what is not measured yet, predict, compare."""
    catalog = Catalog()
    names = [parse_cell(name, catalog).id for name in sys.argv[1:] or CELLS]
    lines = known()
    missing = [name for name in names if name not in lines]
    if missing and "PERFSUITE_EMULATED" in os.environ:
        runner = Runner(catalog, Settings(steps=1, warmup=0))
        try:
            for name in missing:
                lines[name] = measure(runner, parse_cell(name, catalog))
                print(name, lines[name].failed or f"{lines[name].peak_bytes:,}", flush=True)
                text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines.values())
                write_bytes(LINES, text)
        finally:
            runner.close()
    return compare(catalog, [lines[name] for name in names if name in lines], whole=not sys.argv[1:])


def compare(catalog: Catalog, lines: list[Line], whole: bool) -> int:
    """Predict the cells, and write the page if they are the whole list."""
    cells = [parse_cell(line.cell, catalog) for line in lines]
    found = attempt(cells, catalog, processes=2, padded=True, counted=False, fresh=False)
    rows, failed, wrong, equal, worst, reserved = [], [], 0, 0, 0.0, 0.0
    for line, prediction in zip(lines, found, strict=True):
        if line.failed or isinstance(prediction, Failure) or prediction.outcome == "unsupported":
            reason = prediction.message if isinstance(prediction, Failure) else prediction.reason
            failed.append(f"- {line.cell}: {line.failed or reason}")
            continue
        error = prediction.peak_bytes / line.peak_bytes - 1
        apart = prediction.reserved_bytes / line.reserved_bytes - 1
        worst, reserved = max(worst, abs(error)), max(reserved, abs(apart))
        wrong += abs(error) > MOST
        equal += not error
        rows.append(
            f"| {line.cell} | {line.peak_bytes:,} | {prediction.peak_bytes:,} | {100 * error:+.4f} % | "
            f"{line.reserved_bytes:,} | {prediction.reserved_bytes:,} | {100 * apart:+.2f} % | "
            f"{difference(line, prediction)} |"
        )
        print(rows[-1], flush=True)
    print("\n".join(failed))
    versions = next((", ".join(f"{name} {one}" for name, one in line.versions.items()) for line in lines), "")
    head = [
        "# Predicted memory and that of emulated GPUs",
        "",
        "Live tensors of the fullest rank at the peak, and what the caching allocator reserves for tensors, in bytes.",
        "The CUDA build of torch runs on emulated GPUs, and its own allocator counts. A trace of the same code under",
        "fake tensors predicts both. Written by",
        "`perfsuite emulate --gpus h100:2 -- python benchmarks/memory_emulated.py`.",
        "",
        "No GPU took part. The workspaces of cuDNN are what the emulation assumes.",
        "",
        f"{versions}.",
        f"{len(rows)} cells: {equal} equal to the byte, {wrong} off by more than {100 * MOST:.2f} %. "
        f"Worst: live tensors {100 * worst:.4f} %, reserved {100 * reserved:.2f} %.",
        "",
        "| cell | emulated | predicted | difference | reserved, emulated | predicted | difference "
        "| predicted less emulated, by category |",
        "|---|---|---|---|---|---|---|---|",
    ]
    if whole:
        write_bytes(
            PAGE, "\n".join([*head, *rows, "", *(["Not compared:", "", *failed, ""] if failed else [])]).encode()
        )
    print(head[-4])
    return int(wrong > 0 or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
