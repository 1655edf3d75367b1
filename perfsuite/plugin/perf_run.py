"""One pytest run with --perf: its cells' measurements, verdicts, and accepted baselines."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import time
from collections.abc import Iterator

import msgspec
import pytest

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import Cell
from perfsuite.catalog.cpu_kernels import kernels_key
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.launch.hardware_here import why_missing
from perfsuite.launch.leases import Holder, hear_waits
from perfsuite.launch.places import place_of
from perfsuite.plugin.benchmark_clock import leave_out_table, replay
from perfsuite.plugin.cell_result import leave, leave_out, left, without_measurement
from perfsuite.plugin.failing import Failing, Marked
from perfsuite.plugin.fixture import PerfCell, PerfVerdict
from perfsuite.plugin.options import Options
from perfsuite.plugin.output import Output
from perfsuite.plugin.parametrization import catalog_of, cell_of
from perfsuite.plugin.selection import Selection, is_worker
from perfsuite.plugin.settings import FIXTURE, setting
from perfsuite.plugin.settling import Settling
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN, RED, Status
from perfsuite.run.against import Against, changes_to
from perfsuite.run.answering import Answering
from perfsuite.run.gatekeeper import Gatekeeper, NotAccepted
from perfsuite.run.measuring import Measuring
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial
from perfsuite.settings.ini import settings_in
from perfsuite.settings.keys import BASELINES, check_keys
from perfsuite.settings.options import HARDWARE, PREDICT
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.rounds import announcement_text, round_text, wait_text
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import headline, summary
from perfsuite.system.deadline import OutOfTime, check, limit
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.processes import ended_by_sigterm
from perfsuite.system.units import show_rough

ENDED = "{}, and the cell that was running was ended"


class PerfRun:
    """A plugin object that lives for one pytest run with ``--perf``."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        leave_out_table(config)
        try:
            if config.inipath:
                check_keys(settings_in(config.inipath) or {}, config.inipath)
            self.options = Options(config)
            for name in ("update", "against"):
                if getattr(self.options, name):
                    refuse_emulated(f"--perf-{name}")
            against = self.options.against
            self.changes = changes_to(against, config.rootpath) if against else []
            if self.options.launcher == "torchrun" and config.getoption("numprocesses", None):
                raise UsageError("perf_launcher=torchrun and -n: workers of pytest-xdist cannot share its nodes.")
            self.project = read_project(config.rootpath)
            self.places = place_of(self.options.launcher, self.project.slurm, self.say)
            kernels = kernels_key(self.options.settings.kernels)
            self.store = Store(config.rootpath / setting(config, BASELINES), kernels)
            self.recovered = "" if is_worker(config) or config.option.collectonly else self.store.recover()
        except PerfsuiteError as error:
            raise pytest.UsageError(str(error)) from error
        self.failing = Failing(self.project, self.store.root, self.options.fail_open)
        self.selection = Selection(config, self.options, self.store, self.project)
        self.selection.equal = bool(against) and not self.changes
        self.output = Output(config, self.options, self.store, self.selection, self.failing.is_red)
        self.settling = Settling(self)
        config.add_cleanup(hear_waits(self._waits))
        stack = contextlib.ExitStack()
        stack.enter_context(ended_by_sigterm())
        config.add_cleanup(stack.close)
        self.begin = time.monotonic()
        self.checked: set[str] = set()  # tests that have called check()
        self.live = LiveLine(
            self.options.settings.all_steps_of, lambda: str(self.output.pace), quiet=self.output.verbose
        )

    @property
    def catalog(self) -> Catalog:
        """Built when the first cell is collected: by then every conftest has been read."""
        return catalog_of(self.config)

    @functools.cached_property
    def answering(self) -> Answering:
        """Starts its rank servers when the first cell needs them."""
        options, root, cells = self.options, self.config.rootpath, self.selection.cells
        how = Measuring(self.catalog, options.settings, root, self.live.show, options.tolerance, cells)
        trial = Trial(
            how,
            tell=lambda announcement: self.say(announcement_text(announcement)),
            rounds=lambda progress: self.say(round_text(progress)),
            takes_turns=lambda cell: self.places.at(cell.hardware.nodes).takes_turns,
        )
        red = RED | (OPEN if options.fail_open else frozenset())
        tracer = Tracer(options.traces, self.live.show, red if options.trace == "red" else None)
        traced = None if options.trace == "never" else tracer
        if options.against:
            return Against(trial, self.changes, traced)
        return Gatekeeper(
            runner=Runner(self.catalog, options.settings, places=self.places),
            store=self.store,
            how=how,
            consent=options.update,
            reason=options.reason,
            launches=options.launches,
            trial=None if options.trial == "never" else trial,
            always=options.trial == "always",
            tracer=traced,
            most_busy=options.most_busy,
        )

    def is_open(self, cell: Cell) -> bool:
        """Whether the cell waits to be settled."""
        return "answering" in self.__dict__ and self.answering.is_open(cell.id)

    def settled(self) -> Iterator[Result]:
        """The results of the cells that wait, as they are settled."""
        return self.answering.settle()

    def finished(self, result: Result, item: pytest.Item) -> Result:
        """A settled result as the report has it."""
        before = left(item)
        seconds = before.seconds if isinstance(before, Result) else 0.0
        collect = before.verdict.collect if before else result.verdict.collect
        verdict = msgspec.structs.replace(result.verdict, collect=collect)
        result = msgspec.structs.replace(result, verdict=verdict, seconds=seconds, updated=self._relative(result))
        return self.failing.marked(result)

    def text_if_red(self, result: CellResult) -> str:
        """The text of a test that fails by this result; empty if it does not."""
        return render(result.verdict, result.failure) if self.failing.is_red(result) else ""

    def _waits(self, holder: Holder | None, seconds: float) -> None:
        held = time.time() - holder.since if holder else 0.0
        self.say(wait_text(holder.command if holder else None, held, seconds))

    def say(self, text: str) -> None:
        """Write a line at once, although pytest captures the output of a test. A worker of pytest-xdist cannot."""
        manager = self.config.pluginmanager
        reporter, capture = manager.get_plugin("terminalreporter"), manager.get_plugin("capturemanager")
        if reporter is None or is_worker(self.config):
            return
        self.live.clear()
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            reporter.write_line(text)

    def open(self, request: pytest.FixtureRequest) -> PerfCell:
        """The fixture's value. Skips the test if the hardware is absent."""
        cell: Cell = request.param
        try:
            with self.limited():
                check()
                reason = absent = self.places.at(cell.hardware.nodes).why_absent(cell.hardware, self.catalog)
        except OutOfTime as error:
            leave_out(request.node, str(error))
        except PerfsuiteError as error:
            raise PerfVerdict.without(cell, str(error)) from None
        if absent and setting(self.config, PREDICT):
            return PerfCell(cell, self, request, absent)
        if absent and (asked := setting(self.config, HARDWARE)):
            raise PerfVerdict.without(cell, f"{absent} --perf-hardware={asked} needs it; or use --perf-predict.")
        if not os.path.lexists(self.store.path(cell.id)):  # a cell with a baseline did run, so it must run again
            reason = reason or why_missing(cell.strategy)
        if self.options.settings.capacity_bytes is not None and not PROCESSES[cell.strategy.engine.process].whole:
            reason = "a capacity limits tensors, but a cell of messages has none"
        if reason:
            pytest.skip(reason)
        return PerfCell(cell, self, request)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Predict a cell whose hardware is absent, and do not call its test: that wants a measurement."""
        cell = getattr(pyfuncitem, "funcargs", {}).get(FIXTURE)
        if not isinstance(cell, PerfCell) or not cell.absent:
            return None
        self._predict(cell.cell, cell.request)
        return True

    def _predict(self, cell: Cell, request: pytest.FixtureRequest) -> None:
        """Predict and judge instead of measuring. Raises PerfVerdict for a red verdict; skips an unsupported cell."""
        predict = self.config.hook.pytest_perf_predict
        try:
            with self.limited():
                result = predict(
                    cell=cell,
                    catalog=self.catalog,
                    baselines=self.store.root,
                    consent=self.options.update,
                    reason=self.options.reason,
                    command=self._collects(request),
                )
        except OutOfTime as error:
            leave_out(request.node, ENDED.format(error))
        if result is None:
            raise PerfVerdict.without(cell, f"nothing that is installed answers {PREDICT.option}.")
        self._finish(result, request)

    def _finish(self, result: Marked, request: pytest.FixtureRequest) -> Marked:
        """Leave the result for the report. Raises PerfVerdict for a red verdict; skips an unsupported cell."""
        result = self.failing.marked(result)
        leave(request.node, result, self.output.metrics)
        if isinstance(result, Result) and "benchmark" in request.fixturenames and result.measurement.outcome == "fits":
            replay(request, result.measurement)
        return self._told(result)

    def _told(self, result: Marked) -> Marked:
        """The result, if the test goes on. Raises PerfVerdict for a red verdict; skips an unsupported cell."""
        if self.failing.is_red(result):
            raise PerfVerdict(render(result.verdict, result.failure))
        if result.verdict.status == Status.UNSUPPORTED:
            pytest.skip(headline(result.verdict))
        return result

    def limited(self) -> contextlib.AbstractContextManager[None]:
        """Everything inside ends when --perf-budget is used up."""
        budget = self.options.budget
        if budget is None:
            return contextlib.nullcontext()
        return limit(self.begin + budget - time.monotonic(), f"the {show_rough(budget)} of --perf-budget")

    def _collects(self, request: pytest.FixtureRequest) -> str:
        """The command that collects the cell's test: its file may be in no default, its hardware from an option."""
        asked, predict = setting(self.config, HARDWARE), setting(self.config, PREDICT)
        options = ["--perf", *["--perf-predict"] * predict, *([f"--perf-hardware={asked}"] if asked else [])]
        file = os.path.relpath(request.node.path, self.config.invocation_params.dir)
        return shlex.join(["pytest", *options, file])

    def check(self, cell: Cell, request: pytest.FixtureRequest) -> Measurement:
        """What PerfCell.check() does. A second call in one test has the same answer: what was red stays red."""
        self.checked.add(request.node.nodeid)
        known = left(request.node)
        if isinstance(known, Result) and known.verdict.cell == cell.id:
            result = self._told(known)
        else:
            result = self._finish(self.measure(cell, request), request)
        if result.verdict.status == Status.NOT_COMPARED and not result.updated:
            pytest.skip(summary(result.verdict))  # the same for all cells: reported once
        return result.measurement

    def measure(self, cell: Cell, request: pytest.FixtureRequest) -> Result:
        """Compare a cell with its baseline; accept it if the user has consented. Any obstacle gives a red result, but a
        cell that --perf-budget ends is skipped.
        """
        try:
            begin = time.monotonic()
            with self.limited():
                result = self.answering.check(cell)
            seconds = round(time.monotonic() - begin, 3)
        except NotAccepted as error:
            return error.result
        except OutOfTime as error:
            leave_out(request.node, ENDED.format(error))
        except PerfsuiteError as error:
            return without_measurement(cell, self.catalog, str(error))
        finally:
            self.live.clear()
        verdict = msgspec.structs.replace(result.verdict, collect=self._collects(request))
        return msgspec.structs.replace(result, verdict=verdict, seconds=seconds, updated=self._relative(result))

    def _relative(self, result: Result) -> str:
        """The baseline's file that the result was accepted into, as the user would name it; empty if it was not."""
        return os.path.relpath(result.updated, self.config.rootpath) if result.updated else ""

    def pytest_report_header(self) -> str | None:
        """What a killed run had left, and was taken back."""
        return self.recovered or None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Build the environment of --perf-against before any cell: if it cannot be built, none can be compared."""
        self.begin = time.monotonic()
        if not (session.items and self.changes) or session.config.option.collectonly:
            return
        if isinstance(self.answering, Against):
            try:
                with self.limited():
                    self.answering.prepare(self._ahead(session))
            except PerfsuiteError as error:
                raise pytest.UsageError(f"--perf-against={self.options.against}: {error}") from error

    def _ahead(self, session: pytest.Session) -> list[Cell]:
        """The cells that can run here."""
        return [cell for item in session.items if (cell := cell_of(item)) and not self._why_not(cell)]

    def _why_not(self, cell: Cell) -> str:
        return self.places.at(cell.hardware.nodes).why_absent(cell.hardware, self.catalog) or why_missing(cell.strategy)

    def pytest_sessionfinish(self) -> None:
        """End the rank servers."""
        self.live.clear()
        if "answering" in self.__dict__:
            self.answering.close()
        self.places.close()
