"""pytest's entry point to perfsuite: options, markers, parametrization. Hooks only.

Modules that are slow to import are imported when a perf cell is collected or ``--perf`` is given. So plain pytest is as
fast with this plugin as without.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.plugin.settings import FIXTURE, SCRIPT, setting
from perfsuite.settings.keys import KEYS, TESTPATHS
from perfsuite.settings.options import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from perfsuite.plugin.fixture import PerfCell


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option for each setting of one run, and a key of the ini for each setting of the project."""
    group = parser.getgroup("perfsuite", "training performance")
    group.addoption("--perf", action="store_true", help="Train the perf cells, and only them.")
    for option in OPTIONS:
        group.addoption(option.option, help=option.told, **option.for_argparse())
    for key in KEYS:
        parser.addini(key.key, key.told, type=key.kind or None, default=key.default if key.kind != "string" else None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """With ``--perf``, replace ``testpaths`` by ``perf_testpaths`` before pytest loads the conftest files there: other
    tests may import packages that cells do not need.
    """
    if early_config.known_args_namespace.perf and (paths := setting(early_config, TESTPATHS)):
        early_config.getini("testpaths")[:] = paths  # pytest keeps the list that it returns, as addinivalue_line needs
    return (yield)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """The hooks with which a conftest declares its own models and takes results, and a feature predicts cells."""
    pluginmanager.add_hookspecs(HookSpecs)


class HookSpecs:
    """Hooks that perfsuite calls."""

    def pytest_perf_models(self, config: pytest.Config) -> Any:
        """Return your own models, a list of perfsuite.Model, for use in cells."""

    def pytest_perf_result(self, config: pytest.Config, result: Any, is_red: bool) -> None:
        """A cell has its final result, a ``perfsuite.records.result.CellResult``: send it where your team looks.

        ``result.cell`` is the cell's id, ``result.verdict.status`` its status, ``result.number("step_time_seconds")`` a
        number of it, and ``result.kind`` says whether that was measured. ``is_red`` says whether its test fails.

        The terminal, ``--perf-report``, ``--perf-html`` and ``--perf-export`` take results by this hook. With
        pytest-xdist it is called in the process that has the terminal.
        """

    @pytest.hookspec(firstresult=True)
    def pytest_perf_predict(
        self, cell: Any, catalog: Any, baselines: Path, consent: str | None, reason: str, command: str
    ) -> Any:
        """Return the CellResult of a cell on absent hardware; its baseline is in the folder ``baselines``.

        ``consent`` is --perf-update and ``reason`` --perf-reason. ``command`` collects the cell's test.
        """


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
    config.addinivalue_line(
        "markers",
        "perf_prove(*relations): after a script's cell is checked, try these relations of its training, or all; a "
        "broken one fails the test.",
    )
    if config.getoption("--perf"):
        from perfsuite.errors import UsageError
        from perfsuite.system import features
        from perfsuite.system.processes import require_linux

        try:
            require_linux("--perf")
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        from perfsuite.plugin.perf_run import PerfRun
        from perfsuite.plugin.verdict_reports import VerdictReports

        run = PerfRun(config)
        parts = {"session": run, "selection": run.selection, "output": run.output, "settling": run.settling}
        parts["reports"] = VerdictReports(run)
        for name, part in parts.items():
            config.pluginmanager.register(part, f"perfsuite.{name}")
        for hooks in features.modules("pytest_hooks"):
            config.pluginmanager.register(hooks, hooks.__name__)
    elif option := next((one for one in OPTIONS if one.needs_perf and setting(config, one)), None):
        raise pytest.UsageError(f"{option.option} needs --perf: {option.needs_perf}.")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """A run with a red cell fails, whatever other hooks made of its exit status."""
    status = yield
    output = config.pluginmanager.get_plugin("perfsuite.output")
    return pytest.ExitCode.TESTS_FAILED if output and not status and output.has_red else status


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
