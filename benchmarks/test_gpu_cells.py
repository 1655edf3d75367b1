"""Real sizes, on the GPUs of this machine: ``pytest --perf benchmarks/test_gpu_cells.py``. Not in the default grid."""

import pytest


@pytest.mark.perf_cell(
    models=["t5_base", "t5_large", "bloom_560m", "gpt2_medium", "llama_1b"],
    strategies=["single+bf16", "single+bf16+ckpt", "zero2+bf16", "zero3+bf16"],
    hardware=["gpus"],
)
def test_gpu_cell(perf_cell, benchmark):
    """The cell trains on the GPUs of this machine, and nothing got worse."""
    perf_cell.check()
