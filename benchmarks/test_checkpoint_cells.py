"""Checkpoints: what it costs to save and to load, and whether the training goes on as if nothing had happened.

Not in the default grid:  pytest --perf benchmarks/test_checkpoint_cells.py
"""

import pytest

OF_TORCH = ("dcp", "dcp_async", "safetensors")
STAGES = (1, 2, 3)  # of ZeRO, which needs two ranks


@pytest.mark.perf_cell(*(f"gpt2_tiny-single+{form}-cpu_x1" for form in OF_TORCH))
@pytest.mark.perf_cell(*(f"gpt2_tiny-fsdp2+{form}-cpu_x{ranks}" for ranks in (2, 4) for form in OF_TORCH))
@pytest.mark.perf_cell(*(f"gpt2_tiny-zero{stage}+ds_checkpoint-cpu_x{ranks}" for ranks in (2, 4) for stage in STAGES))
def test_cell(perf_cell, benchmark):
    """The checkpoint resumes to the bit, and nothing got worse."""
    perf_cell.check()
