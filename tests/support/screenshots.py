"""Screenshots of the pages, for docs/report.md and docs/site.md: python tests/support/screenshots.py docs/images

The prepared night of red_night.py, predictions, a plan, comparisons, and the dashboard of 400 simulated nights. A sheet
has one page four times: wide and at 390 pixels, light and dark.
"""

import base64
import sys
import tempfile
from pathlib import Path
from typing import Literal, get_args

import msgspec
from ab_samples import compared_sides, page_of
from browsing import CHROMIUM
from playwright.sync_api import Browser, sync_playwright
from red_night import red_night
from replays import missed, replayed
from upgrade_pages import upgraded

from perfsuite.catalog.project import Project
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.nights.dashboard import page_of as name_of
from perfsuite.features.nights.dashboard_folder import Site
from perfsuite.features.nights.row import read_month, write_months
from perfsuite.show.html.run_report import write_run

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from site_speed import write_runs

WIDE, SITE, PHONE = 1000, 1080, 390
SHEET = 1300  # the height of a page on a sheet
Scheme = Literal["light", "dark"]
STEPPED = "gpt2_tiny-ddp-cpu_x2"
CELL = '[id="cell-gpt2_tiny-zero3+bf16-cpu_x2"]'


def shoot(browser: Browser, page: Path, image: Path, width: int, scheme: Scheme, height: int, part: str = "") -> None:
    """One picture of the window, or of a part that is unfolded first."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(page.as_uri())
    if part:
        tab.locator(part).evaluate("(one) => { one.open = true; one.scrollIntoView(); }")
    tab.screenshot(path=image)
    context.close()


def sheet(browser: Browser, page: Path, image: Path, part: str = "") -> None:
    """One page wide and narrow, light and dark, side by side at half of its size."""
    shown = []
    for width in (WIDE, PHONE):
        for scheme in get_args(Scheme):
            shoot(browser, page, image, width, scheme, SHEET, part)
            source = base64.b64encode(image.read_bytes()).decode()
            shown.append(f'<img style="width: {width // 2}px" src="data:image/png;base64,{source}">')
    context = browser.new_context(viewport={"width": WIDE + PHONE + 50, "height": SHEET // 2 + 20})
    tab = context.new_page()
    tab.set_content(f'<body style="display: flex; gap: 10px; margin: 10px">{"".join(shown)}')
    tab.screenshot(path=image)
    context.close()


def make(folder: Path) -> None:
    """The pages."""
    write_run(folder / "run.html", red_night(), Catalog().all("metric").values())
    main(["memory", "gpt2_tiny", "--strategy=zero2+bf16", "--hardware=rtx3090_x2", f"--html={folder / 'memory.html'}"])
    plan = ["plan", "gpt3_175b", "--hardware=a100_80g_x8n128", "--tokens=300e9"]
    main([*plan, f"--html={folder / 'plan.html'}"])
    main(["fit", "gpt2_small", "--hardware=a100_80g_x2", f"--html={folder / 'fit.html'}"])
    made = {"ab": compared_sides(Catalog()), "upgrade": upgraded(), "replay": replayed(), "selftest": missed()}
    for name, document in made.items():
        (folder / f"{name}.html").write_text(page_of(document))
    (folder / "results").mkdir()
    write_runs(folder / "results", runs=400, count=40, days=399)
    newest = sorted((folder / "results").iterdir())[-1]
    red = next(row for row in reversed(read_month(newest)) if row.cell == STEPPED)
    why = {"note": "step time +12.0 % (caused by transformers 5.22.0 -> 5.23.0 alone)", "red": ("step_time_seconds",)}
    write_months([msgspec.structs.replace(red, status="regressed", **why)], folder / "results")
    metrics, project = Catalog().all("metric"), Project(owners={"*": "@training"})
    files = sorted((folder / "results").iterdir())
    Site(files=files, output=folder / "site", metrics=metrics, project=project).write()


if __name__ == "__main__":
    images = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started:
        folder = Path(name)
        make(folder)
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-lcd-text"])
        shoot(chromium, folder / "run.html", images / "report-light.png", WIDE, "light", 900)
        shoot(chromium, folder / "run.html", images / "report-phone.png", PHONE, "dark", 844)
        shoot(chromium, folder / "run.html", images / "cell-dark.png", WIDE, "dark", 900, CELL)
        shoot(chromium, folder / "run.html", images / "cell-phone.png", PHONE, "light", 844, CELL)
        shoot(chromium, folder / "memory.html", images / "memory-light.png", WIDE, "light", 560)
        shoot(chromium, folder / "plan.html", images / "plan-phone.png", PHONE, "dark", 844)
        site = folder / "site" / "index.html"
        cell = site.parent / "cells" / name_of(STEPPED)
        shoot(chromium, site, images / "site-first.png", SITE, "light", 830)
        shoot(chromium, site, images / "site-first-phone.png", PHONE, "dark", 560)
        shoot(chromium, cell, images / "site-cell-wide.png", SITE, "light", 470)
        shoot(chromium, cell, images / "site-cell.png", PHONE, "dark", 560)
        for one in ("run", "memory", "fit", "plan", "ab", "upgrade", "replay", "selftest"):
            sheet(chromium, folder / f"{one}.html", images / f"sheet-{one}.png")
        sheet(chromium, folder / "run.html", images / "sheet-cell.png", CELL)
        sheet(chromium, site, images / "sheet-site.png")
        sheet(chromium, cell, images / "sheet-site-cell.png")
        chromium.close()
