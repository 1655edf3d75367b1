"""The default grid: what ``pytest --perf`` trains. Every cell is held to its baseline in ``baselines/``."""

import pytest

TINY = ("t5_tiny", "bloom_tiny", "gpt2_tiny", "llama_tiny")
CPU = ("cpu_x1", "cpu_x2")
ENGINES = ("single", "ddp", "zero1", "zero2", "zero3")


def on_one_or_two(strategies):
    """``single`` runs on one rank, everything that shards or replicates on two."""
    return [(strategy, CPU[0] if strategy.startswith("single") else CPU[1]) for strategy in strategies]


def cells(models, strategies):
    return [f"{model}-{strategy}-{hardware}" for model in models for strategy, hardware in on_one_or_two(strategies)]


# Every engine in full and in low precision, on every family.
@pytest.mark.perf_cell(*cells(TINY, [engine + precision for engine in ENGINES for precision in ("", "+bf16")]))
# The techniques, and the other task head, where they matter.
@pytest.mark.perf_cell(*cells(["t5_tiny"], ["single+fp16", "single+bf16+ckpt", "ddp+acc2", "zero3+bf16+ckpt+acc2"]))
@pytest.mark.perf_cell(*cells(["bloom_tiny_cls"], ["single", "zero2+bf16", "zero3+bf16"]))
def test_cell(perf_cell, benchmark):
    """The cell trains, and nothing got worse."""
    perf_cell.check()
