"""Which of the collected cells run, what is recorded of them, and the keys of the project that match none."""

from typing import Any

import pytest

from perfsuite.baselines.orphans import orphans
from perfsuite.baselines.store import Store
from perfsuite.catalog.project import Project
from perfsuite.errors import PerfsuiteError
from perfsuite.launch.hardware_here import describe
from perfsuite.plugin.benchmark_clock import give_clock
from perfsuite.plugin.choosing import choose
from perfsuite.plugin.options import Options
from perfsuite.plugin.parametrization import catalog_of, cell_of
from perfsuite.plugin.settings import FIXTURE
from perfsuite.run.past import History, read_history

CHOSEN = "perfsuite chosen"


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


class Selection:
    """A plugin object that lives for one pytest run with ``--perf``, and has its hooks of collection."""

    def __init__(self, config: pytest.Config, options: Options, store: Store, project: Project) -> None:
        self.config, self.options, self.store, self.project = config, options, store, project
        self.cells = 0  # in this run: the error rates are for all of them together
        self.left_out: list[str] = []  # cells' tests that were deselected
        self.history = History()
        self.notes: list[str] = []  # what was not chosen, and why
        self.strangers: list[str] = []  # keys of the project that match no cell
        self.untested: list[str] = []  # cells that have a baseline and no test
        self.known: set[str] = set()  # cells that were collected, whether chosen or not
        self.emptied = False  # whether no cell was chosen
        self.equal = False  # whether both sides of --perf-against are the same

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Keep the cell's name: the keys of owners and quarantine are compared with all of them."""
        if cell := cell_of(item):
            self.known.add(cell.id)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Keep the names of cells that -k leaves out: a mistyped word is compared with them."""
        self.left_out += [item.name for item in items if FIXTURE in getattr(item, "fixturenames", ())]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Choose the cells, after -k has, and count them. Give each item that uses pytest-benchmark its own clock."""
        self.strangers = self.project.strangers({*self.known, *self.store.cells()})
        if self.known and not session.testsfailed and (is_worker(self.config) or self._collects_all()):
            self.untested = orphans(self.store, catalog_of(self.config), self.known)
        self._choose(items)
        self.cells = len(items)
        if not self.config.pluginmanager.hasplugin("benchmark"):
            return
        for item in items:
            if "benchmark" in getattr(item, "fixturenames", ()) and FIXTURE in getattr(item, "fixturenames", ()):
                give_clock(item)

    def _collects_all(self) -> bool:
        """Whether this run asks for all tests of the project, on their own hardware."""
        config = self.config
        narrowed = ("keyword", "ignore", "ignore_glob", "lf")
        if config.args_source is pytest.Config.ArgsSource.ARGS or config.invocation_params.dir != config.rootpath:
            return False
        return not config.getoption("--perf-hardware") and not any(config.getoption(name, None) for name in narrowed)

    def _choose(self, items: list[pytest.Item]) -> None:
        """Deselect what --perf-changed, --perf-shard and --perf-budget leave out."""
        options, cells = self.options, [cell.id for item in items if (cell := cell_of(item))]
        asked = options.changed or options.shard or options.budget
        if self.equal:
            self.notes = [
                f"--perf-against={options.against}: no file of the repository differs from that commit, and all else "
                "is this run's on both sides, so nothing is compared"
            ]
            self.emptied = bool(items)
            self.config.hook.pytest_deselected(items=list(items))
            items.clear()
            return
        try:
            here = self._identities(items) if options.budget and not options.shard else ()
            self.history = read_history(cells, self.store, options.history, here)
            if not asked:
                return
            kept, self.notes = choose(items, options, self.history, self.store, self.config)
        except PerfsuiteError as error:
            if asked or options.history:
                raise pytest.UsageError(str(error)) from error
            return  # only the time that is left is not known then
        self.emptied = not kept and bool(items)
        chosen = set(kept)
        if gone := [item for item in items if item not in chosen]:
            self.config.hook.pytest_deselected(items=gone)
        items[:] = kept

    def _identities(self, items: list[pytest.Item]) -> set[str]:
        """This machine's, by the hardware of the cells. Shards do not ask: they must agree on all machines."""
        hardware = {cell.hardware.name: cell.hardware for item in items if (cell := cell_of(item))}
        return {describe(one, catalog_of(self.config)).identity for one in hardware.values()}

    def pytest_report_collectionfinish(self) -> list[str]:
        """What was left out, and why. With pytest-xdist only the workers know: the summary shows it."""
        return self.notes

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended: all of them have chosen the same cells."""
        ours = self.notes, self.strangers, self.untested, self.emptied
        sent = getattr(node, "workeroutput", {}).get(CHOSEN, ours)
        self.notes, self.strangers, untested, self.emptied = sent
        self.untested = untested if self._collects_all() else []  # a worker has the paths as if they were asked for

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """That nothing differs, or that a change reaches no cell, is an answer. A worker of pytest-xdist sends what it
        has chosen.
        """
        answered = self.equal or self.options.changed
        if self.emptied and answered and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
        if is_worker(self.config):
            chosen = self.notes, self.strangers, self.untested, self.emptied
            self.config.workeroutput[CHOSEN] = chosen  # type: ignore[attr-defined]
