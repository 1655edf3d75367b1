"""Holds the reports of tests whose cells are open until all cells were measured: then one question settles them.

A test ends as pytest knows it, with its fixtures torn down. Only its reports wait, so the outcome that pytest, JUnit,
--lf and xdist count is the final one. With -x, a red cell is settled at once.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol  # private: no public hook gives the reports of a test before they are logged

from perfsuite.plugin.cell_result import attach, fail, replace_result, result_of
from perfsuite.plugin.parametrization import cell_of
from perfsuite.plugin.selection import is_worker
from perfsuite.system.deadline import limit
from perfsuite.system.units import show_rough

if TYPE_CHECKING:
    from perfsuite.plugin.perf_run import PerfRun
    from perfsuite.records.result import Result

LEAST_SECONDS = 60.0  # of the question, without --perf-budget; more if measuring took longer


@dataclass(frozen=True)
class HeldTest:
    """A test whose cell is open: its reports are logged when the cell is settled."""

    item: pytest.Item
    reports: list[pytest.TestReport]

    @property
    def result(self) -> Result:
        """What its cell has so far."""
        [result] = [result for report in self.reports if (result := result_of(report))]
        return result  # type: ignore[return-value]  # a prediction is never open


class Settling:
    """A plugin object that lives for one pytest run with ``--perf``."""

    def __init__(self, run: PerfRun) -> None:
        self.run, self.held = run, dict[str, HeldTest]()  # by cell
        self.item: pytest.Item | None = None  # whose test runs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a cell's test, and hold its reports if the cell is open."""
        cell = cell_of(item)
        if cell is None:
            return None
        if cell.id in self.held:  # another test has the same cell
            self.settle()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self.item = item
        try:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        except BaseException:
            self._log_red(item)
            raise
        finally:
            self.item = None
        if self.run.is_open(cell) and any(map(result_of, reports)):
            held = self.held[cell.id] = HeldTest(item, reports)
            self.run.output.hold(item.nodeid, held.result)
            if item.config.option.maxfail and any(report.failed for report in reports):
                self.settle()
        else:
            self._log(item, reports)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def holds(self, item: pytest.Item) -> bool:
        """Whether the reports of the test, which is running, will be held if its cell is open."""
        return self.item is item

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """After all tests, settle what is open. If the loop was stopped, what is known is logged as it is."""
        try:
            done = yield
        except BaseException:
            self._log_all()
            raise
        self.settle()
        return done

    def settle(self) -> None:
        """Ask the question of all cells that are open, and log their reports."""
        if not self.held:
            return
        seconds, what = self._limit()
        try:
            with limit(seconds, what, patient=self.run.options.budget is None):
                for result in self.run.settled():
                    if held := self.held.pop(result.measurement.cell, None):  # none if another plugin ran its test
                        self._end(held, self.run.finished(result, held.item))
        finally:
            self.run.live.clear()
            self._log_all()

    def _limit(self) -> tuple[float, str]:
        """The seconds of the question, and the limit in words."""
        budget, taken = self.run.options.budget, time.monotonic() - self.run.begin
        if budget is not None:
            return budget - taken, f"the {show_rough(budget)} of --perf-budget"
        seconds = max(LEAST_SECONDS, taken)
        return seconds, f"the {show_rough(seconds)} for open cells (--perf-budget sets more)"

    def _end(self, held: HeldTest, result: Result) -> None:
        """Log the reports with the final result."""
        text = self.run.text_if_red(result)
        for report in held.reports:
            if result_of(report):
                replace_result(report, result, self.run.output.metrics, text)
        self._log(held.item, held.reports)

    def _log_red(self, item: pytest.Item) -> None:
        """The test ended the run, as by pytest.exit(), and has no report: a red verdict is told nevertheless."""
        report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "call")
        attach(item, report)
        if (result := result_of(report)) and (text := self.run.text_if_red(result)):
            fail(report, text)
            self._log(item, [report])

    def _log_all(self) -> None:
        while self.held:
            held = self.held.pop(next(iter(self.held)))
            self._log(held.item, held.reports)

    def _log(self, item: pytest.Item, reports: list[pytest.TestReport]) -> None:
        self._tell_xdist(item)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)

    def _tell_xdist(self, item: pytest.Item) -> None:
        """A worker of pytest-xdist sends each report with the index of the item that it runs."""
        if is_worker(item.config):
            for plugin in item.config.pluginmanager.get_plugins():
                if hasattr(plugin, "item_index") and hasattr(plugin, "sendevent"):
                    plugin.item_index = item.session.items.index(item)
