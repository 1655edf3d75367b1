"""A cell = model × strategy × hardware × workload, and the id that names it everywhere.

t5_base-zero3+bf16-h200_x1          model - strategy - hardware
t5_base-zero3+bf16-h200_x1-b8-s512  the same with another workload: micro-batch 8, 512 tokens (-t: target tokens)
"""

import dataclasses
import itertools
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass

from perfsuite.catalog.cell_id import CPU, CellId, HardwareName
from perfsuite.catalog.definitions import CPU_TIME_TOLERANCE, Device, Engine, Layout, Model, Proposal, Workload
from perfsuite.catalog.expressions import Matcher, matcher
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE
from perfsuite.catalog.slices import why_no_slice
from perfsuite.catalog.strategies import Strategy, parse_strategy
from perfsuite.errors import Refused, UnknownName, UsageError

_SUFFIXES = {"b": "micro_batch", "s": "sequence_length", "t": "target_length"}


@dataclass(frozen=True)
class Hardware:
    """A device kind and a rank count: ``ranks`` devices in each of ``nodes`` nodes. ``device`` is None for a CPU.

    A rank has one of the devices, unless its engine says otherwise: ``Cell.layout``.
    """

    kind: str
    ranks: int
    nodes: int = 1
    device: Device | None = None

    @property
    def name(self) -> str:
        return str(HardwareName(self.kind, self.ranks, self.nodes))

    @property
    def world_size(self) -> int:
        return self.ranks * self.nodes

    @property
    def torch_device(self) -> str:
        """The device type in torch: ``cpu`` or ``cuda`` (which ROCm's torch uses too)."""
        return "cpu" if self.device is None else "cuda"

    @property
    def time_tolerance(self) -> float:
        """The smallest relative slow-down that must be detected."""
        return CPU_TIME_TOLERANCE if self.device is None else self.device.time_tolerance


@dataclass(frozen=True)
class Cell:
    """One thing to measure. ``id`` is canonical: two spellings of one cell have one id. ``faults`` are functions that
    its ranks call before their steps, such as those of the selftest.
    """

    model: Model
    strategy: Strategy
    hardware: Hardware
    workload: Workload
    faults: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        suffixes = [
            f"{letter}{value}"
            for letter, field in _SUFFIXES.items()
            if (value := getattr(self.workload, field)) != getattr(self.model.workload, field)
        ]
        return str(CellId(self.model.name, self.strategy.name, self.hardware.name, tuple(suffixes)))

    @property
    def layout(self) -> Layout:
        """How its ranks are laid out, and how many devices each has. Raises Refused."""
        return lay_out(self.strategy, self.hardware.world_size, self.hardware.name)


def parse_hardware(text: str, catalog: Catalog) -> Hardware:
    """Return the hardware that ``cpu_x2``, ``h200_x1`` or ``v100_32g_x4n16`` (16 nodes of 4) names.

    Raises UnknownName for an unknown device, UsageError if the number of ranks is missing or zero.
    """
    name = HardwareName.parse(text)
    kind, ranks, nodes = name.kind, name.ranks, name.nodes
    devices = catalog.all("device")
    if kind != CPU and kind not in devices:
        known = [CPU, *devices]
        if (near := re.fullmatch(r"(.+?)[_x]*(\d{1,6})", text)) and near[1] in known:
            raise UsageError(f"No hardware named {text!r}. Did you mean '{near[1]}_x{near[2]}'?")
        if not (meant := next((one for one in known if kind.startswith(f"{one}_x")), "")):
            raise UnknownName("hardware", kind, known, "To add one, create perfsuite/catalog/hardware/<family>.py.")
        kind, ranks = meant, None  # what follows is no number, or a larger one
    if ranks is None or ranks < 1 or nodes < 1:
        way_out = f"write {kind}_x1, or {kind}_x4n2 for 2 nodes of 4"
        raise UsageError(f"Hardware {text!r} needs a number of ranks from 1 to 999,999: {way_out}.")
    return Hardware(kind, ranks, nodes, devices.get(kind))


def make_cell(model: str, strategy: str, hardware: str, catalog: Catalog, suffixes: Iterable[str] = ()) -> Cell:
    """Compose a cell from names. Raises UsageError (UnknownName, Refused) for an invalid cell."""
    chosen_model: Model = catalog.get("model", model)
    chosen_strategy = parse_strategy(strategy, catalog)
    chosen_hardware = parse_hardware(hardware, catalog)
    workload = _apply(suffixes, chosen_model)
    reason = why_not(dataclasses.replace(chosen_model, workload=workload), chosen_strategy, chosen_hardware)
    if reason:
        raise Refused(f"{CellId(model, strategy, hardware)}: {reason}")
    if reason := why_too_long(chosen_model, workload):
        raise Refused(reason)
    return Cell(chosen_model, chosen_strategy, chosen_hardware, workload)


def parse_cell(text: str, catalog: Catalog) -> Cell:
    """Return the cell of an id. Raises UsageError (UnknownName, Refused) for an invalid one."""
    named = CellId.split(text)
    if named.engine == ENGINE and named.model not in catalog.all("model"):
        catalog.add_scripts()
        if named.model not in catalog.all("model"):
            way = "perfsuite init adds one to [tool.perfsuite.scripts] of pyproject.toml."
            known = [model.name for model in catalog.all("model").values() if model.command]
            raise UnknownName("script", named.model, known, way)
    return make_cell(named.model, named.strategy, named.hardware, catalog, named.suffixes)


def named_whole(expression: str, ids: Container[str], catalog: Catalog) -> set[str]:
    """The cells that ``-k`` names by their whole ids, ``A`` or ``A or B``. Only those are selected: accepting one cell
    does not accept others whose ids contain its own. Empty for any other expression.

    ``ids`` are known in addition to the catalog's: their model may be a conftest's.
    """
    words = set(expression.split(" or "))
    return words if all(word in ids or _is_id(word, catalog) for word in words) else set()


def _is_id(text: str, catalog: Catalog) -> bool:
    try:
        return parse_cell(text, catalog).id == text
    except UsageError:
        return False


def cells_meant(expression: str, ids: Container[str], catalog: Catalog) -> Matcher:
    """Whether ``-k`` selects a cell's id. Raises UsageError for an invalid expression."""
    whole = named_whole(expression, ids, catalog)
    return whole.__contains__ if whole else matcher(expression)


def why_not(model: Model, strategy: Strategy, hardware: Hardware) -> str:
    """The reason why the strategy cannot run the model on that hardware; empty if it can."""
    engine = strategy.engine
    process = PROCESSES[engine.process]
    if process.task and not process.takes(model):
        own = CellId(process.model, engine.name, hardware.name)
        return f"{engine.name} {process.does} without a model: write {own}."
    if not process.takes(model):
        return f"{model.name} has no weights, so {engine.name} has nothing to do."
    if hardware.device is not None and hardware.device.topology:
        there = hardware.device
        if not process.compiled:
            alone = "takes compiled steps alone, such as those of jax_fsdp+nodrop"
            return f"{engine.name} runs in torch, but {there.name} {alone}."
        if reason := why_no_slice(there, hardware.world_size):
            return reason
    try:
        layout = lay_out(strategy, hardware.world_size, hardware.name)
    except Refused as error:
        return str(error)
    if layout.devices > hardware.ranks:
        return f"{engine.name} is one process, which has no devices of another node: {hardware.name} has several nodes."
    proposal = propose(model, strategy, hardware, layout)
    return next((reason for rule in strategy.rules if (reason := rule(proposal))), "")


def propose(model: Model, strategy: Strategy, hardware: Hardware, layout: Layout) -> Proposal:
    """What the rules of the strategy are asked about."""
    return Proposal(
        model=model,
        engine=strategy.engine,
        techniques=frozenset(choice.technique.name for choice in strategy.choices),
        numbers={choice.technique.name: choice.number for choice in strategy.choices if choice.number is not None},
        layout=layout,
        device=hardware.device,
    )


MOST_TOKENS = 2**24  # of a micro-batch; even a prediction allocates their ids


def why_too_long(model: Model, workload: Workload) -> str:
    """The reason why the model cannot read or write so many tokens, or no batch has them; empty if it can."""
    tokens = workload.micro_batch * (workload.sequence_length + (workload.target_length or 0))
    if tokens > MOST_TOKENS:
        return f"A forward of {tokens:,} tokens exceeds every device, and perfsuite's limit of {MOST_TOKENS:,}."
    longest = max(workload.sequence_length, workload.target_length or 0)
    if model.positions is None or longest <= model.positions:
        return ""
    return f"{model.name} has learned {model.positions:,} positions, so it has none for {longest:,} tokens."


def taken(engine: Engine, hardware: str) -> str:
    """The part of the hardware that an engine uses: one device of several if it trains on a single rank."""
    name = HardwareName.parse(hardware)
    return str(HardwareName(name.kind, 1)) if name.ranks and engine.max_ranks == 1 else hardware


def move(cell: Cell, hardware: str, catalog: Catalog) -> Cell | None:
    """The same cell on other hardware, or on the part that its engine uses; None if it cannot have that many ranks."""
    there = parse_hardware(taken(cell.strategy.engine, hardware), catalog)
    return None if why_not(cell.model, cell.strategy, there) else dataclasses.replace(cell, hardware=there)


def grid(models: Iterable[str], strategies: Iterable[str], hardware: Iterable[str], catalog: Catalog) -> list[Cell]:
    """Every valid combination, in order, each once.

    A strategy that cannot have that many ranks is left out (``single`` has no cell on two ranks). A strategy that fits
    none of the hardware is Refused, and unknown names raise UnknownName, so a typo never shrinks a grid.
    """
    names = list(hardware)
    cells: dict[str, Cell] = {}
    for model, strategy in itertools.product(models, strategies):
        parsed, definition = parse_strategy(strategy, catalog), catalog.get("model", model)
        reasons = [why_not(definition, parsed, parse_hardware(name, catalog)) for name in names]
        fitting = [name for name, reason in zip(names, reasons, strict=True) if not reason]
        if not fitting and names:
            raise Refused(f"{model}-{strategy}: {reasons[0]}")
        for name in fitting:
            cell = make_cell(model, strategy, name, catalog)
            cells.setdefault(cell.id, cell)
    return list(cells.values())


def _apply(suffixes: Iterable[str], model: Model) -> Workload:
    workload = model.workload
    seen = set()
    for suffix in suffixes:
        match = re.fullmatch(r"([a-z])([1-9]\d{0,8})", suffix)
        if not match or match[1] not in _SUFFIXES or match[1] in seen:
            known = ", ".join(f"-{letter}<n> ({field.replace('_', ' ')})" for letter, field in _SUFFIXES.items())
            raise UsageError(f"{suffix!r} is not a workload suffix, or occurs twice. Known: {known}.")
        if getattr(model.workload, _SUFFIXES[match[1]]) == 0 and model.batch:
            raise Refused(f"-{suffix}: {model.name} has no {_SUFFIXES[match[1]].replace('_', ' ')} in its workload.")
        if getattr(model.workload, _SUFFIXES[match[1]]) == 0:
            raise Refused(f"-{suffix}: {model.name} is not a model; its messages have sizes of their own.")
        if match[1] == "t" and model.workload.target_length is None:
            raise Refused(f"-{suffix}: {model.name} has no decoder of its own, so it has no target length.")
        seen.add(match[1])
        workload = dataclasses.replace(workload, **{_SUFFIXES[match[1]]: int(match[2])})
    return workload
