"""The report of a prepared night in a real browser: clicks, keys, themes, a phone, and what axe-core says of it."""

import pytest
from red_night import GROWTH, NOISY, red_night
from test_markdown import result
from test_page import NASTY

from perfsuite.catalog.registry import Catalog
from perfsuite.show.html.document import Command, Document, PageEntry, Section, Table, write
from perfsuite.show.html.run_report import write_run

RED = "gpt2_tiny-zero3+bf16-cpu_x2"

# The dates and the changes of releases that begin on one line and end on another; a block of code breaks anywhere.
BROKEN = r"""() => {
  const found = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("pre, svg")) continue;
    for (const match of node.data.matchAll(/\d{4}-\d\d-\d\d|\S+ (->|→) \S+/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const tops = [...range.getClientRects()].filter((box) => box.width).map((box) => Math.round(box.top));
      if (new Set(tops).size > 1) found.push(match[0]);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of 24 cells: all that are not green, and some that are."""
    path = tmp_path_factory.mktemp("page") / "red.html"
    write_run(path, red_night(24), Catalog().all("metric").values())
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The page of one red cell, the noisy one, a green and a new one: axe-core takes seconds per cell."""
    path = tmp_path_factory.mktemp("small") / "red.html"
    night = red_night(14)
    chosen = [next(one for one in night if one.verdict.status == status) for status in ("regressed", "open", "ok")]
    write_run(path, [*chosen, result(old=None)], Catalog().all("metric").values())
    return path


def test_the_culprit_is_on_the_first_screen(visit, report):
    """The verdict, the cause and the engine that it hits are seen without a click or a scroll."""
    page = visit(report)
    seen = page.evaluate(
        "[...document.querySelectorAll('main p, main summary')]"
        ".filter((one) => one.getBoundingClientRect().bottom < innerHeight).map((one) => one.textContent).join(' ')"
    )

    assert "12 of 24 cells are red. 1 open, 11 green." in seen
    assert f"peak memory +{GROWTH * 100:.1f} % in 12 cells" in seen
    assert "deepspeed 0.19.8 -> 0.20.0" in seen and "All 12 cells with zero3" in seen and "aten::empty_like" in seen


def test_folding(visit, report):
    """A click and a key open a cell; a link opens the cell that it leads to; green cells are closed at first.

    The page's script answers a click after it, so the assertions wait.
    """
    from playwright.sync_api import expect

    page = visit(report)
    green = page.locator("main > section > details")
    cell = page.locator(f'[id="cell-{RED}"]')
    assert green.get_attribute("open") is None and cell.get_attribute("open") is None
    green.locator("summary").first.click()
    cell.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(green).to_have_attribute("open", "")
    expect(cell).to_have_attribute("open", "")
    page.reload()
    page.locator("#cells").get_by_role("link", name=RED, exact=True).click()

    expect(cell).to_have_attribute("open", "")
    expect(cell.locator("figure").first).to_be_visible()


def test_filtering(visit, report):
    """By words and by status, with the number of rows that are left."""
    page = visit(report)
    tools, rows = page.locator('[data-filters="cells"]'), page.locator("#cells tbody tr:visible")
    assert rows.count() == 24
    tools.get_by_label("Filter").fill("zero3 gpt2")
    assert set(rows.locator("td:first-child").all_inner_texts()) == {
        "gpt2_tiny-zero3+bf16-cpu_x2",
        "gpt2_tiny-zero3+quickstart-cpu_x2",
        "gpt2_tiny-zero3-cpu_x2",
    }
    assert tools.locator("output").inner_text() == "3 of 24"
    tools.get_by_label("Filter").fill("nothing of this")
    assert tools.locator("output").inner_text() == "No row matches."
    tools.get_by_label("Filter").fill("")
    tools.get_by_label("status").select_option("open")

    assert rows.locator("td:first-child").all_inner_texts() == [NOISY]


def test_sorting(visit, report):
    """Numbers by their size, not by their text; a second click turns the order around, and readers are told."""
    page = visit(report)
    head = page.locator("#cells th", has_text="peak memory")
    values = "[...document.querySelectorAll('#cells tbody tr')].map((row) => Number(row.cells[2].dataset.v ?? -1))"
    head.get_by_role("button").click()
    down = page.evaluate(values)
    assert down == sorted(down, reverse=True) and head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()

    assert page.evaluate(values) == sorted(down) and head.get_attribute("aria-sort") == "ascending"


def test_copying_a_command(visit, report):
    """The button copies the whole command, and says so to the eye and to a screen reader."""
    page = visit(report)
    card = page.locator("main > section").first.locator("details").first
    card.get_by_role("button", name="Copy the command: accept all 12").click()
    page.wait_for_function("document.querySelector('#told').textContent !== ''")
    copied = page.evaluate("navigator.clipboard.readText()")

    assert copied.startswith("pytest --perf benchmarks/test_cells.py -k 'bloom_tiny-zero3+bf16-cpu_x2 or ")
    assert copied.endswith('--perf-update=regressed --perf-reason="…"')
    assert card.get_by_role("button").filter(has_text="copied").count() == 1


def test_the_theme_is_the_readers_choice(visit, report):
    """Light or dark by the system, and by the button, also after a reload."""
    page = visit(report, scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Switch between dark and light").click()
    light = page.evaluate(background)
    page.reload()

    assert (dark, light, page.evaluate(background)) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)", "rgb(255, 255, 255)")


def test_a_phone_does_not_scroll_sideways(visit, report):
    """At 390 pixels, with everything unfolded; wide tables scroll in their own frame, and charts' text is readable."""
    page = visit(report, width=390)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sizes = page.evaluate("[...document.querySelectorAll('figure svg')].map((one) => one.getScreenCTM().a * 11)")
    assert len(sizes) > 24 and min(sizes) > 9


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_dates_and_releases_stay_on_one_line(visit, report, width):
    """In sentences and tables, with everything unfolded."""
    page = visit(report, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert page.evaluate(BROKEN) == []


def test_a_phone_shows_rows_as_blocks(visit, report):
    """Each value below its column's name, all on the screen; the cell's name has the row's width."""
    page = visit(report, width=390)
    row = page.locator("#cells tbody tr").first
    boxes = row.locator("td").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().toJSON())")

    assert all(box["left"] >= 0 and box["right"] <= 390 for box in boxes) and boxes[0]["width"] > 340
    shown = row.locator("td").nth(3).evaluate("(one) => getComputedStyle(one, '::before').content")
    assert shown == '"peak memory"'


def test_the_head_of_the_table_of_cells_stays(visit, report):
    """Rows scroll below it."""
    page = visit(report)
    frame = page.locator(".scroll.long")
    frame.evaluate("(one) => { one.scrollTop = 100; }")
    top = "(one) => one.getBoundingClientRect().top"

    assert frame.evaluate("(one) => one.scrollTop") > 0
    assert frame.evaluate(top) == pytest.approx(frame.locator("th").first.evaluate(top), abs=1)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(visit, small, width, scheme):
    """Contrast, names, roles and order, with everything unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(small, width=width, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    assert [(one["id"], one["impact"], [node["html"] for node in one["nodes"][:3]]) for one in found] == []


def test_text_of_a_stranger_does_nothing(visit, tmp_path):
    """In every place of a section: no script of it runs, no image of it is fetched, and its text is seen."""
    table = Table(head=[NASTY], rows=[[NASTY], [PageEntry(NASTY, link=NASTY)]], caption=NASTY, name=NASTY, choose=0)
    section = Section(
        heading=NASTY,
        sentences=[NASTY],
        tables=[table],
        commands=[Command(what=NASTY, text=NASTY)],
        text=NASTY,
        anchor=f"{NASTY} 2",
        badge=NASTY,
        tone="red",
    )
    write(tmp_path / "x.html", Document(title=NASTY, verdict=NASTY, facts=[NASTY], sections=[section]))
    page = visit(tmp_path / "x.html")
    page.on("dialog", lambda dialog: pytest.fail("a script ran"))

    assert page.title() == NASTY
    assert page.locator("main img, main script").count() == 0
    assert page.get_by_text(NASTY, exact=True).count() >= 7
