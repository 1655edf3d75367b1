"""The files of a run, written as its cells finish: a killed run keeps what it had."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.records import codec, report_lines
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.records.result import CellResult, Result, RunBegin, RunEnd

SHARE = 1 / 30  # of a run's time may be spent on the page


class Reports:
    """The report's lines, of which every finished cell has one at once, and the page, which may be some cells behind.

    ``metrics`` are asked for when a page is written: the catalog may have a mistake, which is told elsewhere.
    ``unwritten`` says why a file could not be written; the run goes on.
    """

    def __init__(self, lines: Path | None, page: Path | None, metrics: Callable[[], Iterable[Metric]]) -> None:
        self.lines, self.page, self.metrics = lines, page, metrics
        self.results: list[CellResult] = []
        self.unwritten = ""
        self._records: list[Record] = []
        self._there = 0  # of them the lines have
        self._written = 0  # results that the page has
        self._next = 0.0  # when the page may be written again

    def begin(self, selected: list[str]) -> None:
        """The run begins: the files of an earlier one must not stay as those of this one."""
        self._records, self._there = [], 0
        self._append(RunBegin(begin=timestamp(), selected=selected))
        if self.page:
            self.page.unlink(missing_ok=True)

    def end(self, exit_status: int, skipped: dict[str, str]) -> None:
        """The run has ended."""
        final = report_lines.final(self._records)
        if len(final) < len(self._records):
            self._records, self._there = final, 0
        self._append(RunEnd(end=timestamp(), exit_status=exit_status, skipped=skipped))

    def add(self, result: CellResult, waiting: int) -> None:
        """A cell has finished, and ``waiting`` others have not."""
        self.results.append(result)
        self._append(result)
        if time.monotonic() >= self._next:
            self.finish(waiting)

    def hold(self, result: Result) -> None:
        """A cell that is open has its exact verdict: a run that is killed leaves that line, and one that ends leaves
        the final one alone.
        """
        self._append(result)

    def nothing(self) -> None:
        """There is nothing to run, which the page says too."""
        self._written = -1
        self.finish(0)

    def _append(self, record: Record) -> None:
        self._records.append(record)
        if not self.lines:
            return
        try:
            codec.write_lines(self.lines, self._records, self._there)
            self._there = len(self._records)
        except OSError as error:
            self._there = 0  # what is there may be cut off: the next line writes all anew
            self.unwritten = f"perfsuite: the report {self.lines} cannot be written: {error.strerror}."

    def finish(self, waiting: int) -> None:
        """Write the page if it lacks a cell. If no cell has ended, the last page stays."""
        if not self.page or self._written == len(self.results):
            return
        from perfsuite.show.html.document import render
        from perfsuite.show.html.run_report import run_document

        begin = time.monotonic()
        try:
            page = run_document(self.results, self.metrics(), waiting, self.page.parent)
            codec.write_bytes(self.page, render(page))
        except OSError as error:
            self.unwritten = f"perfsuite: the page {self.page} cannot be written: {error.strerror}."
        except Exception as error:  # a mistake in drawing a cell must not end a night of measuring
            self.unwritten = f"perfsuite: the page {self.page} cannot be drawn: {type(error).__name__}: {error}"
        self._written, now = len(self.results), time.monotonic()
        self._next = now + (now - begin) / SHARE
