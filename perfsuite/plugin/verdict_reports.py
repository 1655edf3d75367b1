"""What pytest reports of a test with a cell: the verdict, whatever the test made of it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from perfsuite.plugin.cell_result import attach, fail, leave, leave_again, left, result_of, without_measurement
from perfsuite.plugin.fixture import PerfVerdict
from perfsuite.plugin.parametrization import cell_of
from perfsuite.plugin.settings import FIXTURE
from perfsuite.records.formats import timestamp
from perfsuite.show.text.verdict_words import headline
from perfsuite.system.units import printable

if TYPE_CHECKING:
    from perfsuite.plugin.perf_run import PerfRun


_RUNNING, _AGAIN = pytest.StashKey[bool](), pytest.StashKey[bool]()
NOT_HELD = (
    "{}: the cell is open, and another plugin ran its test, so no question can settle it. Run without that plugin."
)


@dataclass(frozen=True)
class VerdictReports:
    """A plugin object that lives for one pytest run with ``--perf``."""

    run: PerfRun

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test that another plugin runs again has a result before its fixtures begin."""
        item.stash[_AGAIN] = left(item) is not None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """A report that is made while the test runs is one of a part of it, such as a subtest."""
        item.stash[_RUNNING] = True
        if item.stash[_AGAIN]:  # the earlier reports may never be told
            leave_again(item)
        try:
            return (yield)
        finally:
            del item.stash[_RUNNING]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """A red verdict is shown as its text, in the terminal and in JUnit, without a traceback, and fails its test
        whatever the test made of it. A cell that ends without a result, for whatever reason, gets a red one. The result
        belongs to the test, so the report of a subtest has none.
        """
        report, error = (yield), call.excinfo
        part = _RUNNING in item.stash
        if not part:
            attach(item, report)
        if error is not None and error.errisinstance(PerfVerdict):
            fail(report, printable(str(error.value)))
        elif not part and (why := self._why_untrue(item, report)):
            fail(report, why)
        told = part or result_of(report) or not report.failed or report.when == "teardown"
        cell = None if told else cell_of(item)
        if cell is not None and error is not None:
            crash = error.exconly(tryshort=True).partition("\n")[0]
            message = error.value.message if isinstance(error.value, PerfVerdict) else crash
            result = without_measurement(cell, self.run.catalog, printable(message))
            leave(item, msgspec.structs.replace(result, date=timestamp()))
            attach(item, report)
        return report

    def _why_untrue(self, item: pytest.Item, report: pytest.TestReport) -> str:
        """Why a phase of a test that did not fail proves nothing: its test never called check(), or hid the verdict."""
        cell = cell_of(item)
        if cell is None or report.failed or FIXTURE not in getattr(item, "fixturenames", ()):
            return ""
        result = result_of(report)
        if result is None and report.when == "call" and report.passed and item.nodeid not in self.run.checked:
            return f"{cell.id}: the test requests {FIXTURE} and never calls {FIXTURE}.check(), so nothing was compared."
        if result and self.run.is_open(cell) and not self.run.settling.holds(item):
            return NOT_HELD.format(cell.id)
        if result is None or not self.run.failing.is_red(result):
            return ""
        return f"{cell.id}: the cell is red, and the test hid its verdict: {headline(result.verdict)}"
