"""The dashboard in a real browser: owners, sorting, a cell's charts, a phone, and what axe-core says of it."""

import pytest
import simulated_nights as nights

from perfsuite.catalog.project import Project
from perfsuite.catalog.registry import Catalog
from perfsuite.features.nights.dashboard import page_of
from perfsuite.features.nights.dashboard_folder import Site
from perfsuite.features.nights.row import write_months

NASTY = "<img/src=x/onerror=alert(1)>"
STRANGERS = "strangers-a-cpu_x1"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The dashboard of the nights up to the week of the steps, with one cell of a hostile branch."""
    folder = tmp_path_factory.mktemp("nights")
    rows = [row for row in nights.rows() if row.date < nights.date(nights.STEP + 6)]
    odd = {"machine": NASTY, "device": NASTY, "commit": NASTY, "note": NASTY, "status": "failed", "metrics": {NASTY: 3}}
    rows += [nights.row(night, STRANGERS, versions={NASTY: f"{NASTY}{night}"}, **odd) for night in range(46)]
    write_months(rows, folder / "results")
    files, owners = sorted((folder / "results").iterdir()), {"*": "@ana", "*zero1*": "@ben"}
    site = Site(files=files, output=folder / "site", metrics=Catalog().all("metric"), project=Project(owners=owners))
    return site.write().parent


def test_the_cells_of_an_owner(visit, site):
    """The list of owners leaves only theirs."""
    page = visit(site / "index.html")
    page.locator('[data-filters="cells"]').get_by_label("owner").select_option("@ben")

    assert page.locator("#cells tbody tr:visible td:first-child").all_inner_texts() == [nights.LARGER]
    assert page.locator('[data-filters="cells"] output').inner_text() == "1 of 5"


def test_movers_by_size(visit, site):
    """Sorted by their change, in both directions."""
    page = visit(site / "index.html")
    button = page.locator("#movers th", has_text="change").get_by_role("button")
    button.click()
    assert page.locator("#movers tbody td:first-child").all_inner_texts() == [nights.LARGER, nights.SLOWER]
    button.click()

    assert page.locator("#movers tbody td:first-child").all_inner_texts() == [nights.SLOWER, nights.LARGER]


def test_a_cell_opens_with_its_charts(visit, site):
    """A click on its name leads there; the chart has line, release and confirmed step, and tells a night."""
    page = visit(site / "index.html")
    page.locator("#cells").get_by_role("link", name=nights.SLOWER, exact=True).click()
    page.wait_for_selector("figure svg path.curve", state="attached")
    figure = page.locator("figure", has=page.locator("figcaption", has_text="step time"))
    assert figure.locator("path.release").count() == 1
    assert figure.locator("path.step.red.sure").count() == 1
    assert figure.locator("circle.bad").count() == 1
    assert "% on 2026-10-11" in figure.locator("svg").get_attribute("aria-label")
    figure.locator("svg").focus()
    for _ in range(45 - nights.STEP):
        page.keyboard.press("ArrowLeft")

    told = figure.locator(".night").inner_text()
    assert told.startswith(f"2026-10-11 02:17 · {nights.STEP:012x} · ")
    assert told.endswith(" ms · regressed · transformers 5.22.0 → 5.23.0")


def test_fewer_nights(visit, site):
    """The last ones fill the charts; a night is told as before, and all nights come back."""
    page = visit(site / "cells" / page_of(nights.CALM))
    line = page.locator("figure path.curve").first
    line.wait_for(state="attached")
    every = line.get_attribute("d")
    page.evaluate("shown = 10; charts.forEach(chart)")
    few = page.locator("figure path.curve").first.get_attribute("d")

    assert every.count("L") == 45 and few.count("L") == 9


def test_a_value_without_neighbours_is_a_dot(visit, tmp_path):
    """A line would not show it; of more than 60 results, no other has a dot."""
    rows = [nights.row(night, nights.CALM, metrics={"mfu": 0.1} if night == 69 else {}) for night in range(70)]
    write_months(rows, tmp_path / "results")
    files = sorted((tmp_path / "results").iterdir())
    Site(files=files, output=tmp_path / "site", metrics=Catalog().all("metric")).write()
    page = visit(tmp_path / "site" / "cells" / page_of(nights.CALM))
    page.wait_for_selector("figure svg path.curve", state="attached")
    dots = {
        name: page.locator("figure", has=page.locator("figcaption", has_text=name)).locator("circle.f0").count()
        for name in ("MFU", "step time")
    }

    assert dots == {"MFU": 1, "step time": 0}


def test_the_way_back(visit, site):
    """A cell's page leads to all cells."""
    page = visit(site / "cells" / page_of(nights.CALM))
    page.get_by_role("link", name="all cells").click()

    assert page.title() == "Training performance over time"


@pytest.mark.parametrize("name", ["index.html", f"cells/{page_of(nights.SLOWER)}"])
def test_a_phone_does_not_scroll_sideways(visit, site, name):
    """At 390 pixels, with everything unfolded."""
    page = visit(site / name, width=390)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("name", ["index.html", f"cells/{page_of(nights.SLOWER)}"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(visit, site, name, width, scheme):
    """Contrast, names, roles and order, with everything unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(site / name, width=width, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(200)
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    assert [(one["id"], one["impact"], [node["html"] for node in one["nodes"][:3]]) for one in found] == []


def test_text_of_a_stranger_does_nothing(visit, site):
    """Its image is not fetched and its script does not run, also not from a chart's data."""
    for page in (visit(site / "index.html"), visit(site / "cells" / page_of(STRANGERS))):
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.wait_for_timeout(200)

        assert page.locator("img").count() == 0
        assert page.get_by_text(NASTY).count() >= 3
