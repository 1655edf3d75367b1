"""Reinforcement learning: what a step's rollout, reward, advantage and update cost, and whether they agree.

Not in the default grid, since it needs trl:  pytest --perf benchmarks/test_rollout_cells.py
"""

import pytest

pytest.importorskip("trl", reason='trl is not installed: pip install "perfsuite[rollouts]"')


@pytest.mark.perf_script("benchmarks/grpo.py", name="grpo")
def test_grpo(perf_cell, benchmark):
    """Rollout and training agree, and nothing got worse."""
    perf_cell.check()
