"""The default grid: what ``pytest --perf`` trains. Every cell is compared with its baseline in ``baselines/``."""

import pytest

TINY = ("t5_tiny", "bloom_tiny", "gpt2_tiny", "llama_tiny")
CPU = ("cpu_x1", "cpu_x2")
ENGINES = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2")
PIPELINES = ("pp_gpipe", "pp_1f1b", "pp_interleaved", "pp_deepspeed")
TECHNIQUES = ("adafactor", "adamw8bit", "lora", "prune", "clip", "epochs2")


def on_one_or_two(strategies):
    """``single`` runs on one rank, everything that shards or replicates on two."""
    return [(strategy, CPU[0] if strategy.startswith("single") else CPU[1]) for strategy in strategies]


def cells(models, strategies):
    return [f"{model}-{strategy}-{hardware}" for model in models for strategy, hardware in on_one_or_two(strategies)]


# Every engine in full and in low precision, on every family.
@pytest.mark.perf_cell(*cells(TINY, [engine + precision for engine in ENGINES for precision in ("", "+bf16")]))
# Pipelines and tensor parallelism, on families that can be cut or divided; layouts of several dimensions; a loop.
@pytest.mark.perf_cell(*cells(["gpt2_tiny_l4"], ["pp_naive", *(f"{engine}+acc4" for engine in PIPELINES)]))
@pytest.mark.perf_cell(
    *cells(["llama_tiny"], ["tp", "tp+bf16", "autotp", "ddp+hf_trainer+bf16"]), "t5_tiny-autotp-cpu_x2"
)
@pytest.mark.perf_cell("gpt2_tiny-fsdp2+dp2-cpu_x4", "llama_tiny_l4-pp_1f1b+tp2+acc2-cpu_x4")
# The techniques, and the other task head, where they matter.
@pytest.mark.perf_cell(*cells(["t5_tiny"], ["single+fp16", "single+bf16+ckpt", "ddp+acc2", "zero3+bf16+ckpt+acc2"]))
@pytest.mark.perf_cell(*cells(["t5_tiny"], [f"single+{technique}" for technique in TECHNIQUES]))
@pytest.mark.perf_cell(*cells(["t5_tiny"], ["zero2+offload_optimizer", "zero3+offload"]))
@pytest.mark.perf_cell(*cells(["bloom_tiny_cls"], ["single", "zero2+bf16", "zero3+bf16"]))
# Mixtures of experts, images and speech.
@pytest.mark.perf_cell("mixtral_tiny-single-cpu_x1", "mixtral_tiny-ep-cpu_x2", "qwen3_moe_tiny-fsdp2+bf16-cpu_x2")
@pytest.mark.perf_cell("vit_tiny-single-cpu_x1", "whisper_tiny-ddp-cpu_x2")
# Parts of sequences, whole or cut by a window.
@pytest.mark.perf_cell("llama_tiny-ulysses-cpu_x2", "gemma3_tiny-ulysses+bf16-cpu_x2")
# Inference and messages.
@pytest.mark.perf_cell(*(f"{model}-{engine}-cpu_x1" for model in TINY for engine in ("forward", "generate")))
@pytest.mark.perf_cell("wire-all_reduce-cpu_x2", "wire-send_recv-cpu_x2")
def test_cell(perf_cell, benchmark):
    """The cell trains, and nothing got worse."""
    perf_cell.check()
