"""Writes a dashboard: a small first page, and a page for each cell with its data inside. Both open from disk."""

import itertools
import multiprocessing
import os
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.project import Project
from perfsuite.errors import UsageError
from perfsuite.features.nights.cell_page import cell_page
from perfsuite.features.nights.dashboard import CELLS, Dashboard, Summary, moment, page_of
from perfsuite.features.nights.overview import TITLE, overview
from perfsuite.features.nights.series import collect
from perfsuite.records.codec import write_bytes
from perfsuite.show.html.document import render
from perfsuite.system.units import show_several

FIRST = "index.html"
SMALL = 10_000_000  # bytes of results that are not worth a second process


def foreign(folder: Path) -> list[str]:
    """What a folder has, if it is no dashboard: files among which none may be written. Hidden files do not count, nor
    do the pages of cells that a killed run has left.
    """
    first, cells = folder / FIRST, folder / CELLS
    if not folder.is_dir() or (first.is_file() and f"<title>{TITLE}</title>".encode() in first.read_bytes()[:10_000]):
        return []
    ours = cells.is_dir() and all(path.suffix == ".html" for path in cells.iterdir())
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return [name for name in names if name != CELLS or not ours]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A dashboard to write: of these monthly files and reports, into the folder ``output``.

    ``ladders`` are the addresses of asv's sites by library, ``baselines`` the cells that have one.
    """

    files: Sequence[Path]
    output: Path
    metrics: Mapping[str, Metric]
    project: Project = field(default_factory=Project)
    ladders: Mapping[str, str] = field(default_factory=dict)
    baselines: Iterable[str] = ()

    def write(self) -> Path:
        """Write all pages and return the first. Raises UsageError without any result or for an unknown library, and
        FileError for a bad file, before anything is written.
        """
        size = sum(path.stat().st_size for path in self.files)
        workers = len(os.sched_getaffinity(0)) if sys.platform == "linux" and size > SMALL else 1
        done = [self._share(0, 1)] if workers == 1 else _forked(self, workers)
        summaries = sorted((one for each, _ in done for one in each), key=lambda one: (one.cell, one.machine))
        if not summaries:
            raise UsageError(f"{show_several(len(self.files), 'file')}, and no result in them: nothing to show.")
        page = overview(summaries, self._dashboard(done[0][1]), self.baselines)
        write_bytes(self.output / FIRST, render(page))
        return self.output / FIRST

    def _share(self, number: int, workers: int) -> tuple[list[Summary], dict[str, str]]:
        """Write the pages of every so many cells. All workers read all files: that is faster than to share rows."""
        collected = collect(self.files, lambda cell: zlib.crc32(cell.encode()) % workers == number)
        if not collected.last:
            return [], {}
        for library in self.ladders:
            if library not in collected.libraries:
                raise UsageError(
                    f"--ladder: no result has a library {library!r}. Known: {', '.join(sorted(collected.libraries))}."
                )
        (self.output / CELLS).mkdir(parents=True, exist_ok=True)
        dashboard, summaries = self._dashboard(collected.last), []
        templates = resources.files("perfsuite.features.nights") / "templates"
        script = (templates / "nights.js").read_text()  # draws a cell's charts
        for cell, several in itertools.groupby(collected.series, key=lambda one: one.cell):
            document, found = cell_page(list(several), dashboard)
            page = render(document, [script])
            path = self.output / CELLS / page_of(cell)
            path.write_bytes(page)  # not atomically: thousands of synchronized files would take minutes
            summaries += found
        return summaries, collected.last

    def _dashboard(self, last: Mapping[str, str]) -> Dashboard:
        return Dashboard(
            metrics=self.metrics,
            project=self.project,
            ladders=self.ladders,
            until=max(map(moment, last.values())),
            last=last,
        )


_SITE: Site  # of forked workers, which inherit it: metrics are functions, which cannot be sent


def _forked(site: Site, workers: int) -> list[tuple[list[Summary], dict[str, str]]]:
    """What all workers return."""
    global _SITE
    _SITE = site
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return pool.starmap(_work, [(number, workers) for number in range(workers)], chunksize=1)


def _work(number: int, workers: int) -> tuple[list[Summary], dict[str, str]]:
    return _SITE._share(number, workers)
