"""benchmarks/releases.py: twelve pairs per library, from the floor on, and a page of what ran."""

import sys
from pathlib import Path

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.records.verdict import Status
from perfsuite.run.releases_compared import Seen

ROOT = Path(__file__).parents[2]


@pytest.fixture
def releases(monkeypatch):
    """The benchmark's module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "releases", raising=False)
    import releases

    return releases


def seen(pair, cell, *reasons, outcomes=("fits", "fits")):
    return Seen(
        cell=cell,
        a=pair[0],
        b=pair[1],
        status=Status.OK,
        outcomes=outcomes,
        reasons=reasons,
        seconds=1.0,
        date="today",
    )


def test_twelve_pairs_from_the_floor_on(releases, catalog):
    """The oldest release of each library is the floor that pyproject.toml and docs/upgrade.md state."""
    floors, page = releases.floors(), (ROOT / "docs" / "upgrade.md").read_text()

    assert floors.keys() == releases.RELEASES.keys() | {"torch"}
    assert f"| {' | '.join(floors[name] for name in _columns(page))} |" in page
    for library, text in releases.RELEASES.items():
        assert len(releases.pairs_of(library)) == 12
        assert text.startswith(floors[library])
        assert all(parse_cell(cell, catalog).id == cell for cell in releases.CELLS[library])
    assert sorted(releases.FIRST) == list(range(12))


def _columns(page):
    return next(line for line in page.splitlines() if line.startswith("| torch |")).lower().strip("| ").split(" | ")


def test_the_page_has_what_ran(releases):
    """A tick, a numbered reason, a failure, and a question mark for what was not run."""
    cell = releases.CELLS["peft"][0]
    pairs = releases.pairs_of("peft")[:3]
    text = "\n".join(
        releases.sections(
            [
                seen(pairs[0], cell, "", ""),
                seen(pairs[1], cell, "", "It lacks it.", outcomes=("fits", "unsupported")),
                seen(pairs[2], cell, "It lacks it.", "It died.", outcomes=("unsupported", "failed")),
            ]
        )
    )

    assert "| 0.12.0 → 0.13.0 | ✓ | ? |" in text
    assert "| 0.13.0 → 0.13.2 | 1 | ? |" in text
    assert "| 0.13.2 → 0.14.0 | ✗ 1, 2 | ? |" in text
    assert "1. It lacks it.\n2. It died." in text
    assert "0 of 12 pairs were run; 1 comparisons failed." in text
