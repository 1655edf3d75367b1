"""Every engine with every technique that it can have: ``pytest --perf benchmarks/test_full_grid.py``.

Not in the default grid. The cells are those that prove the support table (docs/support.md).
"""

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.support.pairs import claims

CELLS = dict.fromkeys(claim.cells[0].id for claim in claims(Catalog()) if claim.cells)


@pytest.mark.perf_cell(*CELLS)
def test_pair(perf_cell, benchmark):
    """The pair trains, and nothing got worse."""
    perf_cell.check()
