"""What the catalog claims of every engine × technique: the cells that would prove it, or why it is refused.

A loop is a technique of the slot "loop", so engine × loop is a part of it.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfsuite.catalog.definitions import MESSAGES, Device, Engine, Model, Technique
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.cell import Cell, Hardware, why_not
from perfsuite.errors import Refused

TINY = 10_000_000  # parameters; a model with fewer trains in milliseconds
RANKS = (2, 1, 4, 8)  # two first: what one rank does alone proves nothing of an engine that shares work
NUMBERS = (2, 4, 8)  # behind the name of a technique that takes one


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One pair. ``cells`` would prove it, one for every tiny model that accepts it; without any, it is refused.

    ``on_cpu`` says that it is a CPU that is refused, and some GPU is not.
    """

    engine: str
    technique: str
    cells: tuple[Cell, ...] = ()
    reason: str = ""
    on_cpu: bool = False


def claims(catalog: Catalog) -> list[Claim]:
    """Every pair of the catalog, engine by engine."""
    return [claim for engine in catalog.all("engine").values() for claim in _claims_of(engine, catalog)]


def _claims_of(engine: Engine, catalog: Catalog) -> Iterator[Claim]:
    techniques = catalog.all("technique").values()
    messages = engine.process == "communication"
    models = catalog.all("model").values()
    tiny = [model for model in models if model.parameters < TINY and (model.task == MESSAGES) == messages]
    tiny.sort(key=lambda model: (model.parameters, model.name))
    if not engine.refused:  # models that the engine accepts come first: their refusals are the technique's
        alone = {cell.model.name for cell in _cells(parse_strategy(engine.name, catalog), tiny)[0]}
        tiny.sort(key=lambda model: model.name not in alone)
    for technique in techniques:
        yield _claim(engine, technique, tiny, catalog)


def _claim(engine: Engine, technique: Technique, tiny: list[Model], catalog: Catalog) -> Claim:
    claim = functools.partial(Claim, engine=engine.name, technique=technique.name)
    first_reason = ""
    for name in _spellings(technique):
        try:
            strategy = parse_strategy(f"{engine.name}+{name}", catalog)
        except Refused as error:
            return claim(reason=str(error))
        cells, reason = _cells(strategy, tiny)
        if cells:
            return claim(cells=cells)
        first_reason = first_reason or reason
    cells = _together_with_another(engine, technique, tiny, catalog)
    if cells:
        return claim(cells=cells)
    strategy = parse_strategy(f"{engine.name}+{next(_spellings(technique))}", catalog)
    on_cpu = any(_cells(strategy, tiny[:1], device)[0] for device in catalog.all("device").values())
    return claim(reason=first_reason, on_cpu=on_cpu)


def _together_with_another(
    engine: Engine, technique: Technique, tiny: list[Model], catalog: Catalog
) -> tuple[Cell, ...]:
    """The cells of the pair with one more technique, the first that makes it possible: some need another's help."""
    for other in catalog.all("technique").values():
        if other.slot == technique.slot or other.default:
            continue
        for name, more in ((name, more) for name in _spellings(technique) for more in _spellings(other)):
            try:
                strategy = parse_strategy(f"{engine.name}+{name}+{more}", catalog)
            except Refused:
                break
            cells, _ = _cells(strategy, tiny)
            if cells:
                return cells
    return ()


def _spellings(technique: Technique) -> Iterator[str]:
    if technique.parameter is None:
        yield technique.name
    else:
        yield from (f"{technique.name}{number}" for number in NUMBERS)


def _cells(strategy: Strategy, models: Iterable[Model], device: Device | None = None) -> tuple[tuple[Cell, ...], str]:
    """A cell for every model that accepts the strategy on some number of ranks, and the first model's reason against.

    A reason that is not the number of ranks goes before one that is.
    """
    cells, reasons, counts = [], [], []
    for model in models:
        for ranks in RANKS:
            hardware = Hardware(device.name if device else "cpu", ranks, device=device)
            try:
                lay_out(strategy, ranks, hardware.name)
            except Refused as error:
                counts.append(str(error))
                continue
            reason = why_not(model, strategy, hardware)
            if not reason:
                cells.append(Cell(model, strategy, hardware, model.workload))
                break
            reasons.append(reason)
    return tuple(cells), next(iter(reasons + counts), "")
