"""Steps of JAX that are compiled for TPUs which are not here: their memory is predicted, and held to the byte.

pytest --perf --perf-predict benchmarks/test_tpu_cells.py
"""

import pytest


@pytest.mark.perf_cell(
    "gpt2_tiny-jax_dp+nodrop-tpu_v5e_x1",
    "gpt2_tiny-jax_fsdp+nodrop-tpu_v5e_x4",
    "t5_tiny-jax_tp+nodrop-tpu_v6e_x4",
)
def test_predicted_cell(perf_cell):
    """The program needs exactly the memory of its predicted baseline."""
    perf_cell.check()
