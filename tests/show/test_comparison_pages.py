"""The page of `perfsuite ab`."""

from dataclasses import replace

from ab_samples import compared, compared_sides, launched, page_of
from gate_samples import GIB, METRICS, memory

from perfsuite.catalog.definitions import OF_A_PEAK
from perfsuite.show.html.comparisons import comparisons_page


def test_an_ab_shows_both_sides(catalog):
    """The sentence counts the cells; memory differs by category and operator; steps of both sides are one chart."""
    page = page_of(compared_sides(catalog))

    assert "B against A in 1 cell: 1 regressed." in page
    assert '<p class="muted">A: torch==1</p>' in page
    assert "softmax in h.0" in page and "+1.00 GiB (+5.0 %)" in page
    assert page.count("<figcaption>") == 2


def test_an_ab_with_immaterial_differences_has_a_page(catalog):
    """They are green, as in a run; a cell that is worse comes first and gives the colour."""
    metrics = [replace(METRICS[0], materiality=OF_A_PEAK)]
    sides = [launched(1, peak_memory_bytes=memory(20 * GIB + more)) for more in (0, 1, GIB)]
    found = [compared(sides[0], side, metrics=metrics) for side in sides[1:]]
    document = comparisons_page("torch==1", "here", found, catalog.all("metric").values())

    assert document.verdict == "B against A in 2 cells: 1 immaterial, 1 regressed." and document.tone == "red"
    assert [(one.badge, one.tone) for one in document.sections] == [("regressed", "red"), ("immaterial", "green")]
    assert page_of(document).count("immaterial</td>") == 1
