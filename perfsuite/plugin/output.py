"""What a run tells of its cells: a line and a record of each as it ends, and the summary at the end."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.expressions import hint
from perfsuite.compare.machines import others_share
from perfsuite.plugin.cell_result import left_out, result_of
from perfsuite.plugin.options import Options
from perfsuite.plugin.parametrization import catalog_of, cell_of
from perfsuite.plugin.report_files import Reports
from perfsuite.plugin.selection import Selection, is_worker
from perfsuite.plugin.terminal import Pace, width_of, write, write_summary
from perfsuite.records import report_lines
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN
from perfsuite.run.environment_changes import lacks_code
from perfsuite.show.result_views import view_of
from perfsuite.show.text.markdown import is_compared
from perfsuite.show.text.run_summary import line
from perfsuite.show.text.verdict_words import ignored_text, trace_text
from perfsuite.system.units import listed, show_ratio, show_several, some

UNCOMMITTED = (
    "The code of {} is not committed, so only this machine can try a later slow-down against it. Commit it, then "
    "record again."
)


NO_CELLS = (
    "No test here trains a cell, so nothing was measured. perfsuite init -- python train.py writes the test of a "
    "script. A test of your own names its cells with @pytest.mark.perf_cell."
)
NOTHING = (
    "Nothing was compared, so this run is no success: every cell was skipped, has no baseline for this machine, or is "
    "in quarantine. The reasons are above."
)
LEFT_OUT = (
    "--perf-budget left out {} of those chosen, so this run is no success. Give it more time, or choose fewer cells."
)
BUSY = (
    "The times of {} are not stored, since other processes used up to {} of the machine. Exact metrics are. Record "
    "again when it is idle, or allow more with -o perf_busy_share=1."
)
UNTESTED = (
    "{} {} no test here, so nothing is compared with {}: {}. Write a test again, or remove what you no longer need: {}"
)


MOST_NAMED = 3
IsRed = Callable[[CellResult], bool]


class Output:
    """A plugin object that lives for one pytest run with ``--perf``. pytest-xdist's workers send it their results."""

    def __init__(
        self, config: pytest.Config, options: Options, store: Store, selection: Selection, is_red: IsRed
    ) -> None:
        self.is_red = is_red  # whether a result fails its test
        self.config, self.options, self.store, self.selection = config, options, store, selection
        self.verbose = config.getoption("verbose", 0) > 0
        self.results: list[CellResult] = []
        self.skipped: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}  # of skipped tests, by pytest's ids
        self.selected_by_workers = False  # of pytest-xdist
        self.runs = False  # not for --collect-only, --fixtures, --cache-show; --setup-plan runs, but none of its cells
        self.ended = 0  # tests of cells
        self.held: set[str] = set()  # tests whose cells are open, or were
        self.nothing_compared = False
        self.left_out = 0  # cells, by --perf-budget
        self.pace = Pace({})
        self.reports = Reports(options.report, options.html, lambda: self.metrics)

    @property
    def has_red(self) -> bool:
        """Whether a result fails its test."""
        return any(map(self.is_red, self.results))

    @property
    def metrics(self) -> list[Metric]:
        """Those of every process."""
        return list(catalog_of(self.config).all("metric").values())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what is ahead."""
        cells = {item.nodeid: cell_of(item) for item in session.items}
        of = self.selection.history.of
        self.pace = Pace({name: of(cell.id).seconds if cell else None for name, cell in cells.items()})
        elsewhere = is_worker(self.config) or self.config.pluginmanager.hasplugin("dsession")
        if not (session.config.option.collectonly or elsewhere):
            self.reports.begin([item.nodeid for item in session.items])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Tests run, and not only what pytest tells of them."""
        self.runs = not session.config.option.collectonly

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """A worker has collected, and all of them the same."""
        if not self.selected_by_workers:
            self.selected_by_workers = True
            self.selection.cells = len(ids)
            self.reports.begin(list(ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Any:
        """A cell has a line of its own instead of a letter; with -v pytest's own lines stay. A cell that is neither
        green nor red is counted under its status.
        """
        if report.when not in ("setup", "call"):  # a collection has no result
            return None
        result = result_of(report)
        if result and report.passed and (result.verdict.status in OPEN or result.quarantined):
            status = "quarantined" if result.quarantined else result.verdict.status
            return status, "", (status.upper(), {"yellow": True})
        if result and not self.verbose:
            outcome = "error" if report.when == "setup" else report.outcome  # a setup has a result only if it failed
            return outcome, "", outcome.upper()
        return None

    def pytest_sessionstart(self) -> None:
        """A cell's line has its name, so pytest need not write the file's name before each."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not self.verbose:
            reporter.showfspath = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect results where the terminal is: with xdist they come from the workers."""
        if is_worker(self.config):
            return
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")
            self.skipped[self.reasons[report.nodeid]] += 1
        self.left_out += left_out(report)
        self.ended += report.when == "teardown"
        result = result_of(report)
        if report.nodeid not in self.held and (result or report.when == "teardown"):
            self.pace.done(report.nodeid)
        if result:
            final = msgspec.structs.replace(result, test=report.nodeid)
            self.config.hook.pytest_perf_result(config=self.config, result=final, is_red=self.is_red(final))

    @pytest.hookimpl(tryfirst=True)
    def pytest_perf_result(self, result: CellResult) -> None:
        """Keep it for the summary, and write its lines in the report and in the terminal."""
        self.results.append(result)
        self.reports.add(result, self.selection.cells - self.ended - 1)
        self._write_line(result)

    def hold(self, test: str, result: Result) -> None:
        """Print the exact verdict of a cell that is open, and keep it in the report until the final one is there."""
        if is_worker(self.config):
            return
        self.reports.hold(msgspec.structs.replace(result, test=test))
        self.pace.done(test)
        self._write_line(result)
        self.held.add(test)

    def _write_line(self, result: CellResult) -> None:
        """A cell's line, with how far the run is and how long the rest takes."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self.verbose:
            return
        # With --perf-against the baselines' costs say nothing of the run's.
        paced = self.pace and not self.options.against and result.test not in self.held
        ahead = f"  ({self.pace})" if paced and (os.environ.get("CI") or not reporter.isatty) else ""
        if isinstance(result, Result):
            reporter.write_line(line(result, self.metrics, width_of(reporter) - len(ahead)) + ahead)
        else:
            reporter.write_line(view_of(result).line(result) + ahead)

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """The table of all cells, every baseline that was written, and the report if it was not."""
        selection, keyword = self.selection, self.config.option.keyword
        if self.config.pluginmanager.hasplugin("dsession"):
            for note in selection.notes:
                terminalreporter.write_line(note)
        for stranger in selection.strangers:
            write(terminalreporter, stranger, yellow=True)
        if selection.untested:
            write(terminalreporter, self._untested_text(), yellow=True)
        if self.reports.unwritten:
            terminalreporter.write_line(self.reports.unwritten, red=True)
        if self.results or self.skipped:
            terminalreporter.section("training performance")
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and keyword and not selection.emptied:
            near = hint(keyword, selection.left_out) if selection.left_out else ""  # none with xdist
            terminalreporter.write_line(f"-k selects no cell.{near}")
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not keyword and not selection.known:
            write(terminalreporter, NO_CELLS, red=True)
        if self.results or self.skipped:
            write_summary(terminalreporter, self.results, self.skipped, self.metrics)
            self._write_notes(terminalreporter)

    def _untested_text(self) -> str:
        """The baselines without a test, and the command that removes them."""
        cells = self.selection.untested
        tests = [os.path.relpath(path) for path in self.config.args]
        remove = shlex.join(["perfsuite", "baseline", "prune", "--tests", *tests])
        verb, them = ("has", "it") if len(cells) == 1 else ("have", "them")
        return UNTESTED.format(show_several(len(cells), "baseline"), verb, them, some(cells, MOST_NAMED), remove)

    def _write_notes(self, terminalreporter: Any) -> None:
        """What to know beyond the table: nothing was compared, where traces are, baselines that may be wrong."""
        if self.nothing_compared:
            write(terminalreporter, NOTHING, red=True)
        if self.left_out:
            write(terminalreporter, LEFT_OUT.format(show_several(self.left_out, "cell")), red=True)
        if traced := [result.verdict.traces for result in self.results if result.verdict.traces]:
            for trace in traced[0]:
                terminalreporter.write_line(f"trace: {trace_text(trace)}")
            if more := len(traced) - 1:
                folder = os.path.relpath(self.options.traces)
                terminalreporter.write_line(f"traces of {show_several(more, 'more cell')}: {folder}")
        updated = [one.measurement for one in self.results if isinstance(one, Result) and one.updated]
        if spoiled := [share for share in map(others_share, updated) if share > self.options.most_busy]:
            cells, most = show_several(len(spoiled), "cell"), show_ratio(max(spoiled))
            write(terminalreporter, BUSY.format(cells, most), yellow=True)
        if ignored := self.store.ignored(one.cell for one in updated):
            write(terminalreporter, ignored_text(ignored), yellow=True)
        if names := self._uncommitted():
            write(terminalreporter, UNCOMMITTED.format(listed(names)), yellow=True)

    def _uncommitted(self) -> list[str]:
        """The models whose code is in no commit, although baselines were recorded from it."""
        names, catalog = [], catalog_of(self.config)
        for result in self.results:
            if not result.updated or not isinstance(result, Result):
                continue
            cell = parse_cell(result.measurement.cell, catalog)
            baseline = self.store.load(cell.id)
            if baseline is None:
                continue
            commit = baseline.times[-1].commit if baseline.times else baseline.commit
            if lacks_code(commit, cell, catalog, self.config.rootpath, result.measurement.imports):
                names.append(cell.model.name)
        return list(dict.fromkeys(names))

    def _judge_whole(self, session: pytest.Session) -> None:
        """A run that compared nothing is no success, except if --perf-changed says that no cell can be reached. Nor is
        one whose time ended before its cells.
        """
        ran = bool(self.results or self.reasons or (self.runs and self.selection.cells))
        if session.exitstatus == pytest.ExitCode.OK and ran and not any(map(is_compared, self.results)):
            session.exitstatus, self.nothing_compared = pytest.ExitCode.TESTS_FAILED, True
        if session.exitstatus == pytest.ExitCode.OK and self.has_red:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if session.exitstatus == pytest.ExitCode.OK and self.left_out:
            session.exitstatus = report_lines.PARTIAL

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Finish the reports, after the conftests' hooks: what these make of the exit status hides nothing red."""
        result = yield
        if not is_worker(self.config):
            self._finish(session)
        return result

    def _finish(self, session: pytest.Session) -> None:
        if self.selection.emptied and not session.config.option.collectonly:
            self.reports.nothing()
        self._judge_whole(session)
        self.reports.finish(self.selection.cells - self.ended)
        if not session.config.option.collectonly:
            self.reports.end(int(session.exitstatus), self.reasons)
        if self.reports.unwritten:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
