"""Which cells a test trains: its markers, the options and the catalog, resolved when pytest collects."""

import inspect
import itertools
import shlex
from pathlib import Path

import pytest

from perfsuite.catalog.cell import Cell, grid, make_cell, move, named_whole, parse_cell, parse_hardware, taken, why_not
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script_of_file, scripts, words_of
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.launch.hardware_here import local_hardware
from perfsuite.plugin.settings import FIXTURE, SCRIPT, setting
from perfsuite.settings.keys import CATALOG
from perfsuite.settings.options import HARDWARE

LOCAL_GPUS = "gpus"  # in a marker's hardware: every kind of GPU in this machine, with one rank and with all ranks
_CATALOG = pytest.StashKey[Catalog]()
_SCRIPT = inspect.signature(lambda file, arguments="", launcher="python", hardware="cpu_x1", name="": None)


def parametrize_cells(metafunc: pytest.Metafunc) -> None:
    """Give the test one parameter per cell of its markers."""
    config = metafunc.config
    try:
        cells: dict[str, Cell] = {}
        asked = setting(config, HARDWARE)
        markers = [mark for mark in metafunc.definition.iter_markers() if mark.name in (FIXTURE, SCRIPT)]
        for marker in markers:
            if marker.name == SCRIPT:
                some = _cells_of_script(marker, catalog_of(config), asked, config.rootpath)
            else:
                some = _cells_of(marker, catalog_of(config), asked)
            cells.update((cell.id, cell) for cell in some)
        if not markers:
            raise UsageError(
                f"A test that uses {FIXTURE} needs @pytest.mark.{FIXTURE} with the cells to train, or "
                f"@pytest.mark.{SCRIPT} with a script."
            )
    except PerfsuiteError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from error
    parameters = [pytest.param(cell, id=cell.id) for cell in cells.values()]
    if not parameters:
        absent = pytest.mark.skip(
            reason="no cell of this test fits the hardware: no known GPU here, or --perf-hardware"
        )
        parameters = [pytest.param(None, id="no-cell", marks=absent)]
    metafunc.parametrize(FIXTURE, parameters, indirect=True)


def catalog_of(config: pytest.Config) -> Catalog:
    """The catalog of this run: perfsuite's, the folders of ``perf_catalog`` and the conftests' models."""
    if _CATALOG not in config.stash:
        folders = tuple(setting(config, CATALOG))
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(f"perf_catalog names {folder}, which is not a folder.")
        models = [model for some in config.hook.pytest_perf_models(config=config) for model in some]
        measures = config.getoption("--perf")
        project = read_project(config.rootpath)
        materiality = project.materiality if measures else {}
        models += scripts(project.scripts, config.rootpath)
        config.stash[_CATALOG] = Catalog(folders, tuple(models), materiality)
        if measures:
            config.stash[_CATALOG].all("metric")  # a mistake in the user's own files must not wait for the first cell
    return config.stash[_CATALOG]


def _cells_of(marker: pytest.Mark, catalog: Catalog, hardware_option: str | None) -> list[Cell]:
    """The cells of one marker that fit, on the hardware that it names or on that of the option."""
    unknown = marker.kwargs.keys() - {"models", "strategies", "hardware"}
    if unknown:
        raise UsageError(
            f"perf_cell has no {', '.join(sorted(unknown))!r}; it takes ids, models, strategies, hardware."
        )
    for name, value in marker.kwargs.items():
        if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
            raise UsageError(f"perf_cell's {name} must be a list of names, not {value!r}.")
    if not all(isinstance(text, str) for text in marker.args) or not (marker.args or marker.kwargs):
        raise UsageError("perf_cell needs cells: ids, or models, strategies and hardware.")
    named = list(marker.kwargs.get("hardware", ()))
    if marker.kwargs and not named:
        raise UsageError(
            "perf_cell needs hardware=[...] in addition to models and strategies, e.g. hardware=['cpu_x2', 'gpus']."
        )
    models, strategies = marker.kwargs.get("models", ()), marker.kwargs.get("strategies", ())
    cells = [parse_cell(text, catalog) for text in marker.args]
    if hardware_option is None and LOCAL_GPUS not in named:
        return cells + grid(models, strategies, _expand(named, catalog), catalog)
    wanted = _expand(named if hardware_option is None else _names(hardware_option), catalog)
    moved = cells if hardware_option is None else [move(cell, name, catalog) for cell in cells for name in wanted]
    if named == [LOCAL_GPUS]:
        wanted = [name for name in wanted if parse_hardware(name, catalog).device is not None]
    for model, strategy in itertools.product(models, strategies):
        definition, parsed = catalog.get("model", model), parse_strategy(strategy, catalog)  # a typo is told anyway
        for there in (taken(parsed.engine, name) for name in wanted):
            if not why_not(definition, parsed, parse_hardware(there, catalog)):
                moved.append(make_cell(model, strategy, there, catalog))
    return list({cell.id: cell for cell in moved if cell is not None}.values())


def _cells_of_script(marker: pytest.Mark, catalog: Catalog, asked: str | None, folder: Path) -> list[Cell]:
    """The cell of a script, on the hardware that its marker names or on that of the option."""
    try:
        bound = _SCRIPT.bind(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise UsageError(f"{SCRIPT}: {error}. It takes {_SCRIPT}.") from error
    bound.apply_defaults()
    given = bound.arguments
    if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
        raise UsageError(f"{SCRIPT}'s {wrong[0]} must be a text, not {given[wrong[0]]!r}.")
    own = parse_hardware(given.pop("hardware"), catalog)
    model = script_of_file(folder, **given)
    known: Model | None = catalog.all("model").get(model.name)
    if known is None:
        catalog.add(model)
    elif (two := [words_of(one, own.world_size) for one in (known, model)]) and two[0] != two[1]:
        commands = " and ".join(shlex.join(words) or "a model of the catalog" for words in two)
        raise UsageError(f'{model.name} names {commands}. Give this script another name: {SCRIPT}(…, name="mine").')
    cell = make_cell(model.name, ENGINE, own.name, catalog)
    if asked is None:
        return [cell]
    return [there for name in _expand(_names(asked), catalog) if (there := move(cell, name, catalog))]


def cell_of(item: pytest.Item) -> Cell | None:
    """The cell of a test, if it has one."""
    cell: Cell | None = item.callspec.params.get(FIXTURE) if hasattr(item, "callspec") else None
    return cell


def without_neighbours(items: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """The tests that ``-k`` selects if it has whole ids of cells: pytest also takes longer ids that contain one."""
    ids = {cell.id for item in items if (cell := cell_of(item))}
    whole = named_whole(config.option.keyword, ids, catalog_of(config))
    return [item for item in items if (cell := cell_of(item)) and cell.id in whole] if whole else items


def _names(option: str) -> list[str]:
    """Those of --perf-hardware."""
    return [name.strip() for name in option.split(",")]


def _expand(names: list[str], catalog: Catalog) -> list[str]:
    """``gpus`` becomes this machine's GPUs; every other name is checked."""
    for name in names:
        if name != LOCAL_GPUS:
            parse_hardware(name, catalog)
    local = local_hardware(catalog) if LOCAL_GPUS in names else []
    return [one for name in names for one in (local if name == LOCAL_GPUS else [name])]
