"""Data loaders of torch, datasets and accelerate: which samples the ranks read, and what it costs.

Not in the default grid:  pytest --perf benchmarks/test_data_cells.py
"""

import pytest

HUGGING_FACE = ("hf_map", "hf_iterable")
ACCELERATE = ("accelerate_shard", "accelerate_stream", "accelerate_dispatch")


@pytest.mark.perf_cell(*(f"rows-{engine}-cpu_x2" for engine in ("torch_loader", *HUGGING_FACE, *ACCELERATE)))
def test_cell(perf_cell, benchmark):
    """The ranks read each sample as before, and nothing got worse."""
    perf_cell.check()
