"""The catalog's claims about every engine × technique: the cells that would prove it, or why it is refused.

A loop is a technique of the slot "loop", so engine × loop is a part of it.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfsuite.catalog.cell import Cell, Hardware, make_cell, propose
from perfsuite.catalog.definitions import Device, Engine, Model, Proposal, Technique
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import DIMENSIONS, Strategy, parse_strategy
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
    return [claim for engine in engines(catalog) for claim in claims_of(engine, catalog)]


def engines(catalog: Catalog) -> list[Engine]:
    """Those that a technique can be added to: a script chooses its own."""
    return [engine for engine in catalog.all("engine").values() if not engine.own]


def claims_of(engine: Engine, catalog: Catalog) -> Iterator[Claim]:
    """The engine's with every technique."""
    techniques = catalog.all("technique").values()
    models = catalog.all("model").values()
    tiny = [model for model in models if model.parameters < TINY and PROCESSES[engine.process].takes(model)]
    tiny.sort(key=lambda model: (not model.task, model.parameters, model.name))  # with a task, more techniques apply
    base = None
    if not engine.refused:  # models that the engine accepts come first: their refusals come from the technique
        alone = parse_strategy(engine.name, catalog)
        known = {cell.model.name for cell in _search(alone, tiny).cells}
        tiny.sort(key=lambda model: model.name not in known)
        candidates = (alone, *_with_another(engine.name, techniques, catalog))
        base = next((candidate for candidate in candidates if _search(candidate, tiny).cells), None)
    for technique in techniques:
        yield _claim(engine, technique, tiny, base, catalog)


def _claim(engine: Engine, technique: Technique, tiny: list[Model], base: Strategy | None, catalog: Catalog) -> Claim:
    claim = functools.partial(Claim, engine=engine.name, technique=technique.name)
    roots = dict.fromkeys([engine.name, base.name if base else engine.name])
    texts = [f"{root}+{name}" for root in roots for name in _spellings(technique)]
    try:
        alone = parse_strategy(texts[0], catalog)
    except Refused as error:
        return claim(reason=str(error), why=error.why)
    gpus = {frozenset(device.dense_flops): device for device in catalog.all("device").values()}  # one of each kind
    for device in (None, *gpus.values()):
        read = set[str]()
        for search in _searches(texts, tiny, device, catalog):
            read |= search.read
            if search.cells and device is None:
                return claim(cells=search.cells)
            if search.cells:  # a GPU supports it, so the reason of that model counts, whatever other models lack
                return claim(reason=_search(search.strategy, [search.cells[0].model]).reason, on_cpu=True)
        if "device" not in read:
            break
    on = None if base else next(iter(gpus.values()))  # a CPU would refuse the engine, whatever the technique
    return claim(reason=_search(alone, tiny, on).reason)


def _with_another(text: str, others: Iterable[Technique], catalog: Catalog) -> Iterator[Strategy]:
    """The strategy with one more technique: some techniques need another."""
    for other in others:
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


class _WatchedNumbers(Mapping[str, int]):
    """The numbers of techniques, which note whose were asked for: one that has none may be what is missing."""

    def __init__(self, numbers: Mapping[str, int], read: set[str]) -> None:
        self.numbers, self.read = numbers, read

    def __getitem__(self, name: str) -> int:
        self.read.add(f"number of {name}")
        return self.numbers[name]

    def __iter__(self) -> Iterator[str]:
        self.read.add("numbers")
        return iter(self.numbers)

    def __len__(self) -> int:
        self.read.add("numbers")
        return len(self.numbers)


@dataclass(frozen=True, kw_only=True)
class _Watched(Proposal):
    """A proposal that notes which fields a rule reads: whatever the others are, that rule says the same."""

    read: set[str] = field(default_factory=set)

    def __getattribute__(self, name: str) -> Any:
        if name not in ("read", "numbers"):
            self.read.add(name)
        return super().__getattribute__(name)

    def objection(self, strategy: Strategy) -> str:
        """The first objection; ``read`` is what it depends on."""
        for rule in strategy.rules:
            self.read.clear()
            if reason := rule(self):
                return reason
        return ""


def _searches(
    texts: Iterable[str], models: Sequence[Model], device: Device | None, catalog: Catalog
) -> Iterator["_Search"]:
    """Of the strategies alone first, then with another technique that can change why every one is refused."""
    refused = []
    for text in texts:
        with contextlib.suppress(Refused):
            search = _search(parse_strategy(text, catalog), models, device)
            yield search
            refused.append((text, search))
    for text, alone in refused:
        helpful = [technique for technique in catalog.all("technique").values() if alone.may_change_with(technique)]
        for strategy in _with_another(text, helpful, catalog):
            yield _search(strategy, models, device)


@dataclass(frozen=True)
class _Search:
    """A cell for every model that accepts the strategy on some number of ranks, and the first model's reason against
    it; a reason other than the number of ranks comes first. ``read`` is what the refusals depend on.
    """

    strategy: Strategy
    cells: tuple[Cell, ...]
    reason: str
    read: frozenset[str]

    def may_change_with(self, technique: Technique) -> bool:
        """Whether one more technique can change why it is refused."""
        wider = "layout" in self.read and technique.parameter in DIMENSIONS
        return wider or bool(self.read & {"techniques", "numbers", f"number of {technique.name}"})


def _search(strategy: Strategy, models: Sequence[Model], device: Device | None = None) -> _Search:
    cells, reasons, counts, read = [], [], [], set[str]()
    proposals = []
    for ranks in RANKS:
        hardware = Hardware(device.name if device else "cpu", ranks, device=device)
        try:
            layout = lay_out(strategy, ranks, hardware.name)
            proposals.append((hardware, vars(propose(models[0], strategy, hardware, layout))))
        except Refused as error:
            counts.append(str(error))
            read.add("layout")
    for model in models:
        asked, reason = set[str](), ""
        for hardware, proposed in proposals:
            seen = set[str]()
            numbers = _WatchedNumbers(proposed["numbers"], seen)
            proposal = _Watched(**proposed | {"model": model, "numbers": numbers, "read": seen})
            reason = proposal.objection(strategy)
            if not reason:
                cells.append(Cell(model, strategy, hardware, model.workload))
                break
            reasons.append(reason)
            asked |= proposal.read
            if "layout" not in proposal.read:
                break
        read |= asked
        if reason and "model" not in asked:
            break
    return _Search(strategy, tuple(cells), next(iter(reasons + counts), ""), frozenset(read))
