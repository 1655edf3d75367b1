"""Start-up: what a new process does until it trains, with a plain model, an engine of two ranks, and a compiler.

Not in the default grid:  pytest --perf benchmarks/test_start_cells.py
"""

import pytest


@pytest.mark.perf_cell("gpt2_tiny-single+cold_start-cpu_x1", "gpt2_tiny-single+compile_blocks+cold_start-cpu_x1")
@pytest.mark.perf_cell("gpt2_tiny-fsdp2+cold_start-cpu_x2", "gpt2_tiny-zero2+cold_start-cpu_x2")
def test_cell(perf_cell, benchmark):
    """It imports, builds and compiles no more than before, and finds what was compiled."""
    perf_cell.check()
