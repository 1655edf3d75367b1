"""Predicted against measured memory on a CPU, where a run's allocator counts. Writes docs/data/memory/cpu.csv.

    python benchmarks/memory_cpu.py            # all cells, some minutes of two cores
    python benchmarks/memory_cpu.py CELL …     # these

Exit code 1 if a single rank is off by more than 0.01 %, or several ranks by more than 0.1 %.
"""

import sys

from result_tables import write_table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.traced_memory import predict
from perfsuite.run.runner import Runner, Settings

ALONE, TOGETHER = 1e-4, 1e-3
COLUMNS = ("cell", "measured", "predicted", "error", "category that is most off")
CELLS = """
gpt2_tiny-single-cpu_x1 gpt2_tiny-single+bf16-cpu_x1 gpt2_tiny-single+acc4-cpu_x1 gpt2_tiny-single+sgd_momentum-cpu_x1
gpt2_tiny-single+eager-cpu_x1 bloom_tiny-single-cpu_x1 bloom_tiny-single+bf16-cpu_x1 bloom_tiny_cls-single-cpu_x1
llama_tiny-single-cpu_x1 llama_tiny-single+pure_bf16-cpu_x1 llama_tiny-single+bf16+ckpt-cpu_x1 t5_tiny-single-cpu_x1
t5_tiny-single+bf16-cpu_x1 t5_tiny-single+fp16-cpu_x1 t5_tiny-single+bf16+ckpt-cpu_x1
t5_tiny-single+ckpt_selective-cpu_x1 t5_tiny-single+adafactor-cpu_x1 t5_tiny-single+adamw8bit-cpu_x1
t5_tiny-single+adamw_foreach-cpu_x1 t5_tiny-single+adamw_fused-cpu_x1 t5_tiny-single+clip-cpu_x1
t5_tiny-single+lora-cpu_x1 t5_tiny-single+prune-cpu_x1 t5_tiny-single+acc2+accelerate-cpu_x1 gpt2_tiny-ddp-cpu_x2
gpt2_tiny-ddp+bf16-cpu_x2 t5_tiny-ddp+acc2-cpu_x2 bloom_tiny-ddp-cpu_x2 llama_tiny-fsdp2-cpu_x2
t5_tiny-fsdp2+bf16-cpu_x2 bloom_tiny-fsdp2+bf16-cpu_x2 gpt2_tiny-fsdp2+dp2-cpu_x4 gpt2_tiny-fsdp1-cpu_x2
t5_tiny-fsdp1+bf16-cpu_x2 t5_tiny-zero1-cpu_x2 bloom_tiny-zero1-cpu_x2 t5_tiny-zero2-cpu_x2
gpt2_tiny-zero2+bf16-cpu_x2 t5_tiny-zero2+offload_optimizer-cpu_x2 llama_tiny-zero3-cpu_x2 t5_tiny-zero3+bf16-cpu_x2
t5_tiny-zero3+bf16+ckpt+acc2-cpu_x2 t5_tiny-zero3+offload-cpu_x2 llama_tiny-tp-cpu_x2 llama_tiny-autotp-cpu_x2
llama_tiny_l4-fsdp2+tp2-cpu_x4 llama_tiny_l4-pp_1f1b+tp2+acc2-cpu_x4 gpt2_tiny_l4-pp_naive-cpu_x2
gpt2_tiny_l4-pp_gpipe+acc4-cpu_x2 gpt2_tiny_l4-pp_1f1b+acc4-cpu_x2 gpt2_tiny_l4-pp_interleaved+acc4-cpu_x2
mistral_tiny-single-cpu_x1 mistral_tiny-single+bf16+ckpt-cpu_x1 mistral_tiny-fsdp2-cpu_x2
mixtral_tiny-single-cpu_x1 mixtral_tiny-single+bf16-cpu_x1 mixtral_tiny-fsdp2-cpu_x2
qwen3_tiny-single-cpu_x1 qwen3_tiny-single+pure_bf16-cpu_x1 qwen3_tiny-zero3-cpu_x2
qwen3_moe_tiny-single-cpu_x1 qwen3_moe_tiny-single+bf16-cpu_x1 qwen3_moe_tiny-zero2-cpu_x2
deepseek_v3_tiny-single-cpu_x1 deepseek_v3_tiny-single+ckpt-cpu_x1 deepseek_v3_tiny-ddp-cpu_x2
gemma3_tiny-single-cpu_x1 gemma3_tiny-single+bf16-cpu_x1 gemma3_tiny-fsdp2+bf16-cpu_x2
vit_tiny-single-cpu_x1 vit_tiny-single+bf16-cpu_x1 vit_tiny-zero2+bf16-cpu_x2
llava_tiny-single-cpu_x1 llava_tiny-single+bf16-cpu_x1 llava_tiny-fsdp2-cpu_x2
whisper_tiny-single-cpu_x1 whisper_tiny-single+bf16-cpu_x1 whisper_tiny-ddp-cpu_x2
llama_tiny-ulysses-cpu_x2 gemma3_tiny-ulysses+bf16-cpu_x2 llama_tiny-ulysses+packed-cpu_x2
gpt2_tiny-ulysses+dp2+acc2-cpu_x4
gpt2_tiny-single+muon-cpu_x1 t5_tiny-single+muon-cpu_x1 llama_tiny-single+bf16+muon-cpu_x1
llama_tiny-fsdp2+muon-cpu_x2 llama_tiny-tp+muon-cpu_x2
gpt2_tiny-single+chunked_loss-cpu_x1 gpt2_tiny-single+bf16+chunked_loss-cpu_x1
llama_tiny-single+pure_bf16+chunked_loss-cpu_x1 llama_tiny-fsdp2+chunked_loss-cpu_x2
gpt2_tiny-zero3+bf16+chunked_loss-cpu_x2
gpt2_tiny-single+schedule_free-cpu_x1 llama_tiny-fsdp2+bf16+schedule_free-cpu_x2 t5_tiny-single+schedule_free-cpu_x1
gpt2_tiny-single+warmup_cosine-cpu_x1 llama_tiny-single+bf16+warmup_cosine-cpu_x1
gpt2_tiny-zero3+warmup_cosine-cpu_x2 llama_tiny-fsdp2+warmup_cosine-cpu_x2
""".split()  # noqa: SIM905


def main() -> int:
    """Measure, predict, compare."""
    catalog = Catalog()
    cells = [parse_cell(one, catalog) for one in sys.argv[1:] or CELLS]
    runner = Runner(catalog, Settings(steps=1, warmup=0))
    try:
        measured = [runner.measure(cell) for cell in cells]
    finally:
        runner.close()
    predicted = predict(cells, catalog, processes=2, fresh=True)
    lines, worst = [], {True: 0.0, False: 0.0}
    for cell, run, trace in zip(cells, measured, predicted, strict=True):
        if run.failure:
            print(f"{cell.id}: {run.failure.message}", file=sys.stderr)
            return 1
        peak = run.readings["peak_memory_bytes"]
        error = trace.peak_bytes / int(peak.value) - 1
        names = peak.parts.keys() | trace.parts.keys()
        apart = max(names, key=lambda name: abs(trace.parts.get(name, 0) - peak.parts.get(name, 0)))
        part = trace.parts.get(apart, 0) - peak.parts.get(apart, 0)
        alone = run.world_size == 1
        worst[alone] = max(worst[alone], abs(error))
        note = f"{apart.replace('_', ' ')} {part:+,}" if part else ""
        lines.append((cell.id, f"{int(peak.value):,}", f"{trace.peak_bytes:,}", f"{100 * error:+.4f} %", note))
        print(*lines[-1], flush=True)
    if not sys.argv[1:]:
        write_table("memory/cpu", COLUMNS, lines)
    print(f"Worst of one rank {100 * worst[True]:.4f} %, of several {100 * worst[False]:.4f} %.")
    return int(worst[True] > ALONE or worst[False] > TOGETHER)


if __name__ == "__main__":
    sys.exit(main())
