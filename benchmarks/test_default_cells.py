"""Libraries as in their own quick start: nothing is stated that they have a default for, so a changed default is seen.

Not in the default grid:  pytest --perf benchmarks/test_default_cells.py
"""

import pytest

DEEPSPEED = (
    *(f"gpt2_tiny-zero{stage}+quickstart-cpu_x2" for stage in (1, 2, 3)),
    "gpt2_tiny-pp_deepspeed+acc2+quickstart-cpu_x2",
    "llama_tiny-autotp+quickstart-cpu_x2",
)
TRAINER = ("gpt2_tiny-single+hf_trainer+quickstart-cpu_x1", "gpt2_tiny-ddp+hf_trainer+quickstart-cpu_x2")


@pytest.mark.perf_cell(*DEEPSPEED, *TRAINER)
def test_cell(perf_cell, benchmark):
    """The library trains as before, with its own defaults."""
    perf_cell.check()
