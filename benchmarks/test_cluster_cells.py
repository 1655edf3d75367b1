"""Real sizes on several nodes: ``pytest --perf benchmarks/test_cluster_cells.py --perf-hardware=h100_x8n2``."""

import pytest


@pytest.mark.perf_cell(
    models=["llama_1b", "t5_large"],
    strategies=["ddp+bf16", "zero2+bf16", "zero3+bf16", "fsdp2+bf16"],
    hardware=["h100_x8n2"],
)
@pytest.mark.perf_cell("wire-all_reduce-h100_x8n2", "wire-all_gather-h100_x8n2", "wire-send_recv-h100_x8n2")
def test_cluster_cell(perf_cell, benchmark):
    """The cell trains on the nodes, and nothing got worse."""
    perf_cell.check()
