"""Writes a dashboard: a small first page, and a page for each cell with its data inside. Both open from disk."""

import itertools
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import UsageError
from perfsuite.gate.project import Project
from perfsuite.nights.cell_page import cell_page
from perfsuite.nights.dashboard import CELLS, Dashboard, Summary, moment, page_of
from perfsuite.nights.overview import overview
from perfsuite.nights.series import Series, collect
from perfsuite.page.document import fill
from perfsuite.records.codec import write_bytes

FEW = 8  # cells that are not worth a second process


def write_site(
    files: Sequence[Path],
    output: Path,
    metrics: Mapping[str, Metric],
    project: Project,
    ladders: Mapping[str, str],
    baselines: Iterable[str] = (),
) -> Path:
    """Write the dashboard of these monthly files and reports, and return its first page.

    ``baselines`` are cells that have one. Raises UsageError if the files have no results, FileError for a bad file.
    """
    series = collect(files)
    if not series:
        raise UsageError(f"{len(files)} files, and no result in them: nothing to show.")
    last: dict[str, str] = {}
    for one in series:
        last[one.machine] = max(last.get(one.machine, ""), one.dates[-1])
    until = max(moment(date) for date in last.values())
    dashboard = Dashboard(metrics=metrics, project=project, ladders=ladders, until=until, last=last)
    (output / CELLS).mkdir(parents=True, exist_ok=True)
    cells = [list(several) for _, several in itertools.groupby(series, key=lambda one: one.cell)]
    summaries = _cells(cells, dashboard, output)
    known = {one.cell for one in series}
    page = overview(summaries, dashboard, sorted(set(baselines) - known))
    write_bytes(output / "index.html", fill("sections.html", title=page.title, page=page))
    return output / "index.html"


_WORK: tuple[list[list[Series]], Dashboard, Path]  # of forked workers, which inherit it


def _cells(cells: list[list[Series]], dashboard: Dashboard, output: Path) -> list[Summary]:
    """Write every cell's page, in several processes where they can be forked."""
    global _WORK
    _WORK = cells, dashboard, output
    workers = min(len(os.sched_getaffinity(0)), len(cells)) if sys.platform == "linux" else 1
    if len(cells) < FEW or workers == 1:
        found = list(map(_write, range(len(cells))))
    else:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            found = pool.map(_write, range(len(cells)), chunksize=1)
    return [summary for several in found for summary in several]


def _write(number: int) -> list[Summary]:
    """One cell's page."""
    cells, dashboard, output = _WORK
    document, summaries = cell_page(cells[number], dashboard)
    path = output / CELLS / page_of(cells[number][0].cell)
    page = fill("sections.html", title=document.title, page=document, scripts=[script()])
    path.write_bytes(page)  # not atomically: thousands of synchronized files would take minutes
    return summaries


def script() -> str:
    """What draws the charts of a cell's page."""
    return (resources.files("perfsuite.nights") / "templates" / "nights.js").read_text()
