"""Every engine with every technique that it supports: the cells that prove the support table (docs/support.json).

Not in the default grid, and without baselines in this repository. Record this machine's first, then compare with them:

    pytest --perf benchmarks/test_full_grid.py --perf-update=new
    pytest --perf benchmarks/test_full_grid.py
"""

from pathlib import Path

import pytest

from perfsuite.features.prove.compatibility.proofs import load

PROOFS = load(Path(__file__).parents[1] / "docs" / "support.json")
CELLS = dict.fromkeys(entry.cell for entry in PROOFS.values() if entry.state == "runs")


@pytest.mark.perf_cell(*CELLS)
def test_pair(perf_cell, benchmark):
    """The pair trains, and nothing got worse."""
    perf_cell.check()
