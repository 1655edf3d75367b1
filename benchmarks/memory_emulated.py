"""Predicted memory against that of emulated GPUs, where torch's own allocator counts.

Writes docs/data/memory/emulated.csv and untraced.csv.

    python benchmarks/memory_emulated.py            # all cells, each kind of GPU in an emulation: about 40 minutes
    python benchmarks/memory_emulated.py CELL …     # these
    python benchmarks/memory_emulated.py --table    # nothing is measured: the table from what was

Every measured cell is a line of docs/memory_emulated.jsonl, and is not measured again: remove the line for that.
Exit code 1 if live tensors differ by more than 0.05 % or reserved memory by more than 1 %, or a cell fails.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from result_tables import write_table

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.records.codec import write_bytes
from perfsuite.records.failure import Failure
from perfsuite.records.record import Record
from perfsuite.run.runner import Runner, Settings

MOST, MOST_RESERVED = 5e-4, 0.01  # of the live tensors, of reserved memory
DOCS = Path(__file__).parents[1] / "docs"
LINES = DOCS / "memory_emulated.jsonl"
COLUMNS = (
    "cell", "emulated", "predicted", "difference", "reserved, emulated", "reserved, predicted", "reserved, difference",
    "predicted less emulated, by category",
)  # fmt: skip
REFUSED = ("cell", "bytes", "reserved", "why")
CELLS = """
gpt2_tiny-single-h100_x1 gpt2_tiny-single+bf16-h100_x1 gpt2_tiny-single+bf16+ckpt-h100_x1
gpt2_tiny-single+fp16-h100_x1 gpt2_tiny-single+pure_bf16-h100_x1 gpt2_tiny-single+tf32-h100_x1
t5_tiny-single-h100_x1 t5_tiny-single+bf16-h100_x1 t5_tiny-single+fp16-h100_x1 t5_tiny-single+pure_bf16-h100_x1
t5_tiny-single+bf16+ckpt-h100_x1
bloom_tiny-single-h100_x1 bloom_tiny-single+bf16-h100_x1 bloom_tiny-single+pure_bf16-h100_x1
bloom_tiny_cls-single+bf16-h100_x1
llama_tiny-single-h100_x1 llama_tiny-single+bf16-h100_x1 llama_tiny-single+pure_bf16-h100_x1
gpt2_tiny-single+adamw_foreach-h100_x1 gpt2_tiny-single+adamw_fused-h100_x1 gpt2_tiny-single+adamw_loop-h100_x1
gpt2_tiny-single+adafactor-h100_x1 gpt2_tiny-single+adamw8bit-h100_x1 gpt2_tiny-single+adamw8bit_ao-h100_x1
gpt2_tiny-single+adamw4bit_ao-h100_x1 gpt2_tiny-single+sgd-h100_x1 gpt2_tiny-single+sgd_momentum-h100_x1
gpt2_tiny-single+bf16+nodrop-h100_x1 gpt2_tiny-single+bf16+eager-h100_x1 gpt2_tiny-single+bf16+sdpa-h100_x1
gpt2_tiny-single+bf16+acc4-h100_x1 gpt2_tiny-single+bf16+clip-h100_x1 gpt2_tiny-single+lora+bf16-h100_x1
gpt2_tiny-single+prune-h100_x1 gpt2_tiny-single+prune_structured-h100_x1
gpt2_tiny-single+bf16+ckpt_selective-h100_x1 gpt2_tiny-single+bf16+ckpt_offload-h100_x1
gpt2_tiny-single+bf16+accelerate-h100_x1
gpt2_tiny-ddp-h100_x2 gpt2_tiny-ddp+bf16-h100_x2 gpt2_tiny-fsdp1-h100_x2 gpt2_tiny-fsdp1+bf16-h100_x2
gpt2_tiny-fsdp2-h100_x2 gpt2_tiny-fsdp2+bf16-h100_x2 gpt2_tiny-fsdp2+bf16+offload-h100_x2
gpt2_tiny-zero1-h100_x2 gpt2_tiny-zero1+bf16-h100_x2 gpt2_tiny-zero2-h100_x2 gpt2_tiny-zero2+bf16-h100_x2
gpt2_tiny-zero2+bf16+offload_optimizer-h100_x2 gpt2_tiny-zero2+bf16+quickstart-h100_x2
gpt2_tiny-zero3-h100_x2 gpt2_tiny-zero3+bf16-h100_x2 gpt2_tiny-zero3+bf16+offload-h100_x2
gpt2_tiny-zero3+bf16+offload_params-h100_x2
llama_tiny-tp-h100_x2 llama_tiny-tp+bf16-h100_x2 llama_tiny-autotp-h100_x2 llama_tiny-autotp+bf16-h100_x2
llama_tiny-fsdp2+bf16+ckpt-h100_x2 bloom_tiny-zero1+bf16-h100_x2 bloom_tiny-fsdp2+bf16-h100_x2
t5_tiny-ddp+bf16-h100_x2 t5_tiny-fsdp2+bf16-h100_x2 t5_tiny-zero2+bf16-h100_x2 t5_tiny-zero3+bf16-h100_x2
gpt2_tiny_l4-pp_naive+bf16-h100_x2 gpt2_tiny_l4-pp_gpipe+bf16+acc4-h100_x2
gpt2_tiny_l4-pp_1f1b+bf16+acc4-h100_x2 gpt2_tiny_l4-pp_interleaved+bf16+acc4-h100_x2
gpt2_tiny_l4-pp_zero_bubble+bf16+acc4-h100_x2
gpt2_tiny_l4-pp_1f1b+dp2+bf16+acc2-h100_x4 llama_tiny-fsdp2+tp2+bf16-h100_x4
gpt2_small-single+bf16-h100_x1 t5_base-single+bf16-h100_x1 t5_large-single+bf16+ckpt-h100_x1
bloom_560m-single+bf16-h100_x1 llama_1b-single+pure_bf16+ckpt-h100_x1 gpt2_medium-ddp+bf16-h100_x2
gpt2_medium-zero2+bf16-h100_x2 gpt2_medium-zero3+bf16-h100_x2 llama_1b-fsdp2+bf16-h100_x2
gpt2_medium-pp_1f1b+bf16+acc2-h100_x2
gpt2_tiny-single+bf16-a100_80g_x1 llama_tiny-fsdp2+bf16-a100_80g_x2 t5_tiny-zero3+bf16-a100_80g_x2
t5_base-single+bf16-a100_80g_x1
gpt2_tiny-single+bf16-rtx3090_x1 llama_tiny-fsdp2+bf16-rtx3090_x2 t5_tiny-zero3+bf16-rtx3090_x2
gpt2_small-single+bf16-rtx3090_x1
qwen3_tiny-single+bf16-h100_x1 qwen3_tiny-fsdp2+bf16-h100_x2 qwen3_tiny-tp+bf16-h100_x2
qwen3_moe_tiny-single+bf16-h100_x1 qwen3_moe_tiny-ddp+bf16-h100_x2 qwen3_moe_tiny-fsdp2+bf16-h100_x2
mixtral_tiny-single-h100_x1 mixtral_tiny-single+bf16-h100_x1 mixtral_tiny-ddp+bf16-h100_x2
deepseek_v3_tiny-single-h100_x1 deepseek_v3_tiny-single+bf16-h100_x1 deepseek_v3_tiny-fsdp2+bf16-h100_x2
gemma3_tiny-single+bf16-h100_x1 gemma3_tiny-ddp+bf16-h100_x2 gemma3_tiny-zero2+bf16-h100_x2
mistral_tiny-single+bf16-h100_x1 mistral_tiny-zero3+bf16-h100_x2 mistral_tiny-fsdp2+bf16-h100_x2
vit_tiny-single-h100_x1 vit_tiny-single+bf16-h100_x1 vit_tiny-ddp+bf16-h100_x2
llava_tiny-single-h100_x1 llava_tiny-single+bf16-h100_x1 llava_tiny-ddp+bf16-h100_x2
whisper_tiny-single-h100_x1 whisper_tiny-single+bf16-h100_x1 whisper_tiny-ddp+bf16-h100_x2
llama_tiny-ulysses+bf16-h100_x2 qwen3_tiny-ulysses-h100_x2 llama_tiny-ulysses+bf16+ckpt-h100_x2
llama_tiny-single+fp8-h100_x1 llama_tiny-ddp+fp8-h100_x2 qwen3_tiny-single+fp8-h100_x1 qwen3_600m-single+fp8-h100_x1
llama_tiny-fsdp2+fp8-h100_x2 mistral_tiny-single+fp8+ckpt-h100_x1 llama_tiny-fsdp2+fp8_gather-h100_x2
llama_tiny-fsdp2+fp8_gather+ckpt+acc2-h100_x2 qwen3_600m-fsdp2+fp8_gather-h100_x2
gpt2_tiny-single+muon-h100_x1 llama_tiny-single+bf16+muon-h100_x1 llama_tiny-fsdp2+muon-h100_x2
gpt2_tiny-single+chunked_loss-h100_x1 llama_tiny-ddp+chunked_loss-h100_x2
llama_tiny-fsdp2+ckpt+chunked_loss-h100_x2 llama_tiny-ddp+bf16+chunked_loss-h100_x2
llama_tiny-single+qlora+bf16-h100_x1 llama_tiny-single+lora_int8+bf16-h100_x1 llama_tiny-fsdp1+lora+bf16-h100_x2
llama_tiny-fsdp2+bf16+acc2+reduce_each-h100_x2
gpt2_tiny-single+schedule_free-h100_x1 llama_tiny-single+bf16+schedule_free-h100_x1 llama_tiny-ddp+schedule_free-h100_x2
gpt2_tiny-single+warmup_cosine-h100_x1 llama_tiny-ddp+bf16+warmup_cosine-h100_x2 gpt2_tiny-zero2+warmup_cosine-h100_x2
gpt2_tiny-zero3+hpz2+bf16-h100_x4 llama_tiny-zero3+hpz2+acc2-h100_x4 llama_tiny-zero3+hpz2+bf16+ckpt-h100_x4
llama_tiny-single+fp8_rowwise-h100_x1 llama_tiny-ddp+fp8_rowwise-h100_x2 qwen3_600m-single+fp8_rowwise-h100_x1
llama_tiny-single+bf16+packed-h100_x1 llama_tiny-ddp+bf16+packed-h100_x2 qwen3_tiny-single+packed-h100_x1
llama_tiny-single+dora+bf16-h100_x1 llama_tiny-ddp+dora+bf16-h100_x2 gpt2_tiny-single+dora-h100_x1
gpt2_tiny_l4-megatron+bf16-h100_x1 gpt2_tiny_l4-megatron+tp2+bf16-h100_x2
gpt2_tiny_l4-megatron_distributed+dp2+bf16-h100_x2
gpt2_tiny-fairscale_sdp-h100_x2
""".split()  # noqa: SIM905
# A trace refuses these, and why is its own sentence in the table.
UNTRACED = """
gpt2_tiny-single+compile-h100_x1 gpt2_tiny-single+bf16+hf_trainer-h100_x1 gpt2_tiny-single+epochs2-h100_x1
gpt2_tiny_l4-pp_deepspeed+bf16+acc2-h100_x2 gpt2_tiny-fsdp1+bf16+offload-h100_x2
gpt2_tiny-forward-h100_x1 gpt2_tiny-generate-h100_x1
gpt2_tiny_l4-device_map-h100_x2 t5_tiny-device_map+bf16-h100_x2
t5_base-device_map+bf16+eager-rtx3090_x2-s2816
mixtral_tiny-ep+bf16-h100_x2 gpt2_tiny-fairscale_fsdp-h100_x2
""".split()  # noqa: SIM905
GPUS = 4  # of each kind


class Line(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What one emulated cell measured: the fullest rank's bytes at the peak, and why there are none. If a rank has
    several devices, ``devices`` are the reserved bytes of each.
    """

    cell: str
    failed: str
    peak_bytes: int
    parts: dict[str, int]
    reserved_bytes: int
    versions: dict[str, str]
    devices: tuple[int, ...] = ()


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
    peak, reserved = run.readings["peak_memory_bytes"], run.readings["reserved_memory_bytes"]
    return Line(
        cell=cell.id,
        failed="",
        peak_bytes=int(peak.value),
        parts=peak.parts,
        reserved_bytes=int(reserved.value),
        versions=run.versions,
        devices=tuple(map(int, reserved.ranks)) if run.devices > 1 else (),
    )


def difference(line: Line, prediction: Prediction) -> str:
    """The categories in which the two differ, largest first."""
    names = line.parts.keys() | prediction.parts.keys()
    apart = {name: prediction.parts.get(name, 0) - line.parts.get(name, 0) for name in names}
    moved = sorted((name for name in names if apart[name]), key=lambda name: (-abs(apart[name]), name))
    return ", ".join(f"{name.replace('_', ' ')} {apart[name]:+,}" for name in moved[:3])


def main() -> int:
    """Measure what is not measured yet, each kind of GPU in its own emulation, then write the tables."""
    catalog, words = Catalog(), sys.argv[1:]
    emulated = "PERFSUITE_EMULATED" in os.environ
    if words == ["--table"]:
        return compare(catalog) if emulated else emulate("h100", "--table")
    cells = [parse_cell(name, catalog) for name in words or CELLS + UNTRACED]
    if emulated:
        measure_all(cells, catalog)
        return 0
    kinds: dict[str, list[str]] = {}
    for cell in cells:
        assert cell.hardware.device
        if cell.id not in known():
            kinds.setdefault(cell.hardware.device.name, []).append(cell.id)
    for kind, names in kinds.items():
        if emulate(f"{kind}:{GPUS}", *names):
            return 1
    return emulate("h100", "--table")


def emulate(gpus: str, *words: str) -> int:
    """Run this file on emulated GPUs; its exit code."""
    command = [
        sys.executable,
        "-m",
        "perfsuite.cli.main",
        "emulate",
        "--gpus",
        gpus,
        "--",
        sys.executable,
        __file__,
        *words,
    ]
    return subprocess.run(command, check=False).returncode


def measure_all(cells: Sequence[Cell], catalog: Catalog) -> None:
    """Measure the cells here, and keep each as soon as it has ended."""
    runner = Runner(catalog, Settings(steps=1, warmup=0))
    try:
        for cell in cells:
            lines = {**known(), cell.id: measure(runner, cell)}
            print(cell.id, lines[cell.id].failed or f"{lines[cell.id].peak_bytes:,}", flush=True)
            write_bytes(LINES, b"".join(msgspec.json.encode(line) + b"\n" for line in lines.values()))
    finally:
        runner.close()


def compare(catalog: Catalog) -> int:
    """Predict all measured cells, and write the tables. Exit code 1 if one is missing, failed, or too far off."""
    lines = known()
    here = [name for name in CELLS + UNTRACED if name in lines]
    missing = len(CELLS + UNTRACED) - len(here)
    cells = [parse_cell(name, catalog) for name in here]
    with MemoryTracer(2) as tracer:
        found = dict(attempt_each(cells, catalog, tracer))
    rows, untraced, failed, wrong, equal, worst, reserved = [], [], [], 0, 0, 0.0, 0.0
    for number, name in enumerate(here):
        line, prediction = lines[name], found[number]
        if line.failed or isinstance(prediction, Failure):
            reason = prediction.message + " " + prediction.tail[-500:] if isinstance(prediction, Failure) else ""
            failed.append(f"- {name}: {line.failed or reason}")
            continue
        if prediction.outcome == "unsupported":
            untraced.append((name, f"{line.peak_bytes:,}", f"{line.reserved_bytes:,}", prediction.reason))
            continue
        error = prediction.peak_bytes / line.peak_bytes - 1
        apart = prediction.reserved_bytes / line.reserved_bytes - 1
        worst, reserved = max(worst, abs(error)), max(reserved, abs(apart))
        wrong += abs(error) > MOST or abs(apart) > MOST_RESERVED
        equal += not error
        rows.append(
            (
                name,
                f"{line.peak_bytes:,}",
                f"{prediction.peak_bytes:,}",
                f"{100 * error:+.4f} %",
                f"{line.reserved_bytes:,}",
                f"{prediction.reserved_bytes:,}",
                f"{100 * apart:+.2f} %",
                difference(line, prediction),
            )
        )
        if error or apart:
            print(*rows[-1], flush=True)
    summary = (
        f"{len(rows)} cells: {equal} equal to the byte, {wrong} off by more than {100 * MOST:.2f} % or "
        f"{100 * MOST_RESERVED:.0f} % reserved. "
        f"Worst: live tensors {100 * worst:.4f} %, reserved {100 * reserved:.2f} %."
    )
    write_table("memory/emulated", COLUMNS, rows)
    write_table("memory/untraced", REFUSED, untraced)
    print("\n".join([*failed, summary, *([f"{missing} cells are not measured yet."] if missing else [])]))
    return int(wrong > 0 or bool(failed) or missing > 0)


if __name__ == "__main__":
    sys.exit(main())
