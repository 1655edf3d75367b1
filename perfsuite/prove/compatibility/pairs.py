"""The catalog's claims about every engine × technique: the cells that would prove it, or why it is refused.

A loop is a technique of the slot "loop", so engine × loop is a part of it.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfsuite.catalog.cell import Cell, Hardware, make_cell, objection
from perfsuite.catalog.definitions import Device, Engine, Model, Technique
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.errors import Refused, UsageError

TINY = 10_000_000  # parameters; a model with fewer trains in milliseconds
RANKS = (2, 1, 4, 8)  # 2 first: a single rank proves nothing about an engine that shares work
NUMBERS = (2, 4, 8)  # after the name of a technique that takes one


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One pair. ``cells`` would prove it, one for every tiny model that accepts it; without any, it is refused for the
    ``reason``. ``why`` is the reason without the pair's names, if it is known apart.

    ``on_cpu``: a CPU is refused, but some GPU is not.
    """

    engine: str
    technique: str
    cells: tuple[Cell, ...] = ()
    reason: str = ""
    why: str = ""
    on_cpu: bool = False


def claims(catalog: Catalog) -> list[Claim]:
    """Every pair of the catalog, engine by engine."""
    return [claim for engine in engines(catalog) for claim in _claims_of(engine, catalog)]


def engines(catalog: Catalog) -> list[Engine]:
    """Those that a technique can be added to: a script chooses its own."""
    return [engine for engine in catalog.all("engine").values() if not engine.own]


def _claims_of(engine: Engine, catalog: Catalog) -> Iterator[Claim]:
    techniques = catalog.all("technique").values()
    models = catalog.all("model").values()
    tiny = [model for model in models if model.parameters < TINY and PROCESSES[engine.process].takes(model)]
    tiny.sort(key=lambda model: (not model.task, model.parameters, model.name))  # with a task, more techniques apply
    base = None
    if not engine.refused:  # models that the engine accepts come first: their refusals come from the technique
        alone = parse_strategy(engine.name, catalog)
        known = {cell.model.name for cell in _cells(alone, tiny)[0]}
        tiny.sort(key=lambda model: model.name not in known)
        base = next((one for one in (alone, *_with_another(engine.name, catalog)) if _cells(one, tiny)[0]), None)
    for technique in techniques:
        yield _claim(engine, technique, tiny, base, catalog)


def _claim(engine: Engine, technique: Technique, tiny: list[Model], base: Strategy | None, catalog: Catalog) -> Claim:
    claim = functools.partial(Claim, engine=engine.name, technique=technique.name)
    names = list(_spellings(technique))
    try:
        alone = [parse_strategy(f"{engine.name}+{name}", catalog) for name in names]
    except Refused as error:
        return claim(reason=str(error), why=error.why)
    if cells := _first_cells(alone, tiny):
        return claim(cells=cells)
    roots = dict.fromkeys([engine.name, base.name if base else engine.name])
    helped = [one for root in roots for name in names for one in _with_another(f"{root}+{name}", catalog)]
    if cells := _first_cells(helped, tiny):
        return claim(cells=cells)
    devices = {frozenset(device.dense_flops): device for device in catalog.all("device").values()}  # one of each kind
    for strategy, device in itertools.product((*alone, *helped), devices.values()):
        there, _ = _cells(strategy, tiny, device)
        if there:  # a GPU supports it, so the reason of that model counts, whatever other models lack
            return claim(reason=_cells(strategy, [there[0].model])[1], on_cpu=True)
    on = None if base else next(iter(devices.values()))  # a CPU would refuse the engine, whatever the technique
    return claim(reason=_cells(alone[0], tiny, on)[1])


def _first_cells(strategies: Iterable[Strategy], models: list[Model]) -> tuple[Cell, ...]:
    return next((cells for strategy in strategies if (cells := _cells(strategy, models)[0])), ())


def _with_another(text: str, catalog: Catalog) -> Iterator[Strategy]:
    """The strategy with one more technique: some techniques need another."""
    for other in catalog.all("technique").values():
        for more in _spellings(other) if not other.default else ():
            try:
                yield parse_strategy(f"{text}+{more}", catalog)
            except Refused:
                break


def advised(claim: Claim, add: Iterable[str], catalog: Catalog) -> Iterator[Cell]:
    """The pair's cells with a technique that a refusal in a rank suggests."""
    for name, cell in itertools.product(add, claim.cells):
        with contextlib.suppress(UsageError):
            yield make_cell(cell.model.name, f"{cell.strategy.name}+{name}", cell.hardware.name, catalog)


def _spellings(technique: Technique) -> Iterator[str]:
    if technique.parameter is None:
        yield technique.name
    else:
        yield from (f"{technique.name}{number}" for number in NUMBERS)


def _cells(strategy: Strategy, models: Iterable[Model], device: Device | None = None) -> tuple[tuple[Cell, ...], str]:
    """A cell for every model that accepts the strategy on some number of ranks, and the first model's reason against
    it.

    A reason other than the number of ranks comes first.
    """
    cells, reasons, counts = [], [], []
    layouts = []
    for ranks in RANKS:
        hardware = Hardware(device.name if device else "cpu", ranks, device=device)
        try:
            layouts.append((hardware, lay_out(strategy, ranks, hardware.name)))
        except Refused as error:
            counts.append(str(error))
    for model in models:
        for hardware, layout in layouts:
            reason = objection(model, strategy, hardware, layout)
            if not reason:
                cells.append(Cell(model, strategy, hardware, model.workload))
                break
            reasons.append(reason)
    return tuple(cells), next(iter(reasons + counts), "")
