"""Checkpoints: what it costs to save and to load, and whether the training goes on as if nothing had happened.

Not in the default grid:  pytest --perf benchmarks/test_checkpoint_cells.py
"""

import pytest


@pytest.mark.perf_cell("gpt2_tiny-single+dcp-cpu_x1", "gpt2_tiny-single+safetensors-cpu_x1")
@pytest.mark.perf_cell(*(f"gpt2_tiny-fsdp2+{form}-cpu_x2" for form in ("dcp", "dcp_async", "safetensors")))
@pytest.mark.perf_cell(*(f"gpt2_tiny-zero{stage}+ds_checkpoint-cpu_x2" for stage in (1, 2, 3)))
@pytest.mark.perf_cell(
    *(f"gpt2_tiny-{cell}-cpu_x4" for cell in ("fsdp2+dcp", "fsdp2+dcp_async", "zero2+ds_checkpoint"))
)
def test_cell(perf_cell, benchmark):
    """The checkpoint resumes to the bit, and nothing got worse."""
    perf_cell.check()
