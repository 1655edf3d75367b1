"""pytest's entry point to perfsuite: options, markers, parametrization. Hooks only.

Modules that are slow to import are imported when a perf cell is collected or ``--perf`` is given. So plain pytest is as
fast with this plugin as without.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.plugin.settings import FIXTURE, SCRIPT, SETTINGS, UPDATES

if TYPE_CHECKING:
    from perfsuite.plugin.perf_run import PerfCell


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options default to None, so that the ini setting counts if no option is given."""
    group = parser.getgroup("perfsuite", "training performance")
    group.addoption("--perf", action="store_true", help="Train the perf cells, and only them.")
    group.addoption("--perf-predict", action="store_true", help=_PREDICT_HELP)
    group.addoption("--perf-update", type=_consents, metavar="|".join(UPDATES), help=_UPDATE_HELP)
    group.addoption("--perf-reason", default="", metavar="TEXT", help=_REASON_HELP)
    group.addoption("--perf-against", metavar="REF", help=_AGAINST_HELP)
    group.addoption("--perf-changed", nargs="?", const="HEAD", metavar="REF", help=_CHANGED_HELP)
    group.addoption("--perf-shard", metavar="N/COUNT", help=_SHARD_HELP)
    group.addoption("--perf-budget", metavar="TIME", help=_BUDGET_HELP)
    for name, kind, text in SETTINGS:
        metavar = name.upper()
        parser.addini(f"perf_{name}", f"{text} Option: --perf-{name.replace('_', '-')}.", default=None)
        group.addoption(
            f"--perf-{name.replace('_', '-')}", type=kind, metavar=metavar, help=f"{text} Ini: perf_{name}."
        )
    parser.addini("perf_baselines", "Folder of the baselines, relative to the rootdir.", default="baselines")
    parser.addini("perf_catalog", "Folders with your own models, engines, …", type="paths", default=[])
    parser.addini("perf_testpaths", "Paths that --perf collects instead of testpaths.", type="args", default=[])


_PREDICT_HELP = "Predict the memory of cells whose hardware is absent, and compare it with predicted baselines."
_UPDATE_HELP = (
    "Accept measurements into baselines, and print the changes. new: cells without a baseline. regressed: cells that "
    "got worse. improved: cells that got better. times: the times of cells that are green. all: all that differ. "
    "Several are possible: new,times."
)
_AGAINST_HELP = (
    "Compare every cell with another environment in this run, not with its baseline: a git revision, "
    "'transformers==5.22.0', or a file of constraints."
)
_CHANGED_HELP = (
    "Run only the cells that a change since a git revision (HEAD) can reach: by their imports, definitions, tests or "
    "libraries. A cell without a record of its imports runs."
)
_SHARD_HELP = "Run one share of the cells, e.g. 2/8; the shares cost about the same by the recorded times."
_BUDGET_HELP = "Run the most informative cells per minute, by their history, until a time is used up, e.g. 20min."
_REASON_HELP = (
    "Why the baselines change, for the ledger (ledger.jsonl next to them). --perf-update=regressed and all need it, "
    "since they may lower the bar. times needs it if the environment differs from that of the stored times."
)


def _consents(text: str) -> str:
    """One consent or several. Raises ArgumentTypeError for an unknown one."""
    for name in text.split(","):
        if name not in UPDATES:
            raise argparse.ArgumentTypeError(f"unknown value {name!r}; known: {', '.join(UPDATES)}")
    return text


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """With ``--perf``, replace ``testpaths`` by ``perf_testpaths`` before pytest loads the conftest files there: other
    tests may import packages that cells do not need.
    """
    if early_config.known_args_namespace.perf and (paths := early_config.getini("perf_testpaths")):
        early_config.getini("testpaths")[:] = paths  # pytest keeps the list that it returns, as addinivalue_line needs
    return (yield)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """The hook with which a conftest declares its own models."""
    pluginmanager.add_hookspecs(HookSpecs)


class HookSpecs:
    """Hooks that perfsuite calls."""

    def pytest_perf_models(self, config: pytest.Config) -> Any:
        """Return your own models, a list of perfsuite.Model, for use in cells."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with ``--perf``, the part that runs cells."""
    config.addinivalue_line(
        "markers",
        "perf_cell(*ids, models=(), strategies=(), hardware=()): train these cells in tests that use the perf_cell "
        "fixture: by id, and every valid combination of models, strategies and hardware.",
    )
    config.addinivalue_line(
        "markers",
        "perf_script(file, arguments='', launcher='python', hardware='cpu_x1', name=''): train this script, started by "
        "python, torchrun, accelerate launch or deepspeed, in a test that uses the perf_cell fixture.",
    )
    if config.getoption("--perf"):
        from perfsuite.errors import UsageError
        from perfsuite.records.processes import require_linux

        try:
            require_linux("--perf")
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        from perfsuite.plugin.perf_run import PerfRun

        run = PerfRun(config)
        parts = {"session": run, "selection": run.selection, "output": run.output, "settling": run.settling}
        for name, part in parts.items():
            config.pluginmanager.register(part, f"perfsuite.{name}")
    elif option := next(filter(config.getoption, _ONLY_WITH_PERF), ""):
        raise pytest.UsageError(f"{option} needs --perf: {_ONLY_WITH_PERF[option]}.")


_ONLY_WITH_PERF = dict.fromkeys(("--perf-changed", "--perf-shard", "--perf-budget"), "without it no cell runs") | {
    "--perf-predict": "without it no cell is collected",
    "--perf-update": "nothing is measured without it",
    "--perf-reason": "nothing is measured without it",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per cell, named by the cell's id."""
    if FIXTURE in metafunc.fixturenames:
        from perfsuite.plugin.parametrization import parametrize_cells

        parametrize_cells(metafunc)
    elif marks := [mark.name for mark in metafunc.definition.own_markers if mark.name in (FIXTURE, SCRIPT)]:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: a test with @pytest.mark.{marks[0]} trains nothing unless it takes the "
            f"fixture: def {metafunc.definition.name}({FIXTURE}): {FIXTURE}.check()"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--perf`` only the cells, with ``-k CELL`` only that cell; without ``--perf`` no cell."""
    cells = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]
    if not config.getoption("--perf"):
        for item in cells:
            item.add_marker(pytest.mark.skip(reason="needs --perf"))
        return
    if cells and config.option.keyword:
        from perfsuite.plugin.parametrization import without_neighbours

        cells = without_neighbours(cells, config)
    ours = set(cells)
    others = [item for item in items if item not in ours]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = cells


@pytest.fixture
def perf_cell(request: pytest.FixtureRequest) -> PerfCell:
    """The cell of this test. ``perf_cell.check()`` trains it and fails the test unless its verdict is good."""
    session = request.config.pluginmanager.get_plugin("perfsuite.session")
    assert session is not None
    cell: PerfCell = session.open(request)
    return cell
