"""``perfsuite fit MODEL``: which strategies fit a device's memory, how fast they are, and what each costs."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from rich.table import Table

from perfsuite.catalog.cell import Cell, Hardware, make_cell, parse_hardware
from perfsuite.catalog.definitions import Device
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.slices import why_no_slice
from perfsuite.cli.shared_options import add_html, add_shared, catalog_of, given, html_of, write_html
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.beside_emulated import add_emulated, again, is_here, measure, sentence
from perfsuite.features.predict.commands.memory import add_workload, collect, workload_of
from perfsuite.features.predict.largest import Search, candidates, search
from perfsuite.features.predict.memory_table import batches, headroom
from perfsuite.features.predict.own_model import SEQUENCE, find_model
from perfsuite.features.predict.plan.cell_question import time_with
from perfsuite.features.predict.predicted_time import TITLES, entries
from perfsuite.features.predict.prediction import Estimate, PredictedTime, Prediction
from perfsuite.features.predict.prediction_pages import cells_page
from perfsuite.features.predict.sizes import Size, sizes_each
from perfsuite.features.predict.state_bound import StateBound
from perfsuite.features.predict.time.cell_steps import time_of
from perfsuite.features.predict.time.software import SOFTWARE
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.trace_summary import moves_tensors
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.records.failure import Failure
from perfsuite.settings.keys import CATALOG
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.machine import cores
from perfsuite.system.units import show_bytes

HELP = "Which strategies fit into a device's memory, the fastest first."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite fit t5_large --hardware rtx3090_x2",
    "perfsuite fit --strategy single+qlora+fp16+ckpt --hardware t4_x1",
)
PAGE = "memory"
STARTS_PROCESSES = True


class Choices(msgspec.Struct, frozen=True):
    """The content of ``fit.toml``: the default strategies, and what techniques and engines cost in words."""

    strategies: tuple[str, ...]
    techniques: dict[str, str]
    engines: dict[str, str]


CHOICES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Choices)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "A model of `perfsuite list models` or of the hub, or a config.json; without one, the largest that fits."
    parser.add_argument("model", metavar="MODEL", nargs="?", help=text)
    parser.add_argument("--hardware", required=True, metavar="H", help="Device and ranks, e.g. rtx3090_x2.")
    text = f"Strategies to try ({', '.join(CHOICES.strategies)})."
    parser.add_argument("--strategy", nargs="+", metavar="S", help=text)
    add_workload(parser)
    text = f"Predict the steps of other software with the same layouts ({', '.join(SOFTWARE)})."
    parser.add_argument("--stack", choices=SOFTWARE, metavar="S", help=text)
    text = "Trace every strategy's whole model; by default only those that an estimate cannot decide."
    parser.add_argument("--whole", action="store_true", help=text)
    parser.add_argument("--fresh", action="store_true", help="Trace again, even if an earlier result is cached.")
    add_emulated(parser, "Run what cannot be traced on emulated GPUs: `perfsuite emulate --help`.")
    add_html(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Rank the strategies: those that fit first, the fastest of them on top, then those without a predicted time by the
    bytes that are left. Exit code 1 if none fits or one failed.
    """
    page, catalog = html_of(arguments), catalog_of(arguments)
    hardware = parse_hardware(arguments.hardware, catalog)
    if hardware.device is None:
        raise UsageError("A CPU uses the machine's memory; name a device: --hardware rtx3090_x2.")
    if hardware.device.topology and (reason := why_no_slice(hardware.device, hardware.world_size)):
        raise UsageError(reason)
    if arguments.model is None:
        return _largest(arguments, hardware, catalog)
    model = find_model(arguments.model, catalog)
    strategies = arguments.strategy or usual(hardware.device, catalog)
    if arguments.emulated and not is_here():
        _again(arguments, arguments.model, hardware, strategies)
    cells, refused = possible(model.name, strategies, hardware, catalog)
    cells = [one for one in cells if arguments.strategy or is_of_use(one)]
    cells = [dataclasses.replace(one, workload=workload_of(arguments, one.model)) for one in cells]
    stack = arguments.stack
    times = {one.id: time_with(one, stack) if stack else time_of(one, not arguments.unpadded) for one in cells}
    cells.sort(key=lambda cell: -times[cell.id].predicted_tokens_per_second)  # the most interesting are traced first
    sizes, failed = _sizes(cells, catalog, arguments)
    by_id = {cell.id: cell for cell in cells}
    ranked = rank([size for size in sizes if size.outcome != "unsupported"], times)
    table = _table(ranked, by_id, times)
    samples = batches(workload_of(arguments, model), not arguments.unpadded)
    print(f"{model.name} on {hardware.name}: predicted, not measured; {samples}")
    print()
    print_table(table)
    notes = _notes(ranked, times, stack)
    untraced = [size for size in sizes if isinstance(size, Prediction) and size.outcome == "unsupported"]
    measured = measure([by_id[one.cell] for one in untraced], catalog) if arguments.emulated else []
    for number, one in enumerate(untraced):
        notes.append(f"{one.cell} is not predicted: {one.reason}")
        if arguments.emulated:
            notes.append(f"{one.cell}: {sentence(measured[number])}.")
    notes += refused
    print("".join(f"\n{note}" for note in notes), end="\n" * bool(notes))
    fitting = sum(one.outcome == "fits" for one in ranked)
    verdict = f"{fitting} of {len(ranked)} strategies fit {model.name} on {hardware.name}, in {samples}."
    names = [by_id[one.cell].strategy.name for one in ranked]
    write_html(page, cells_page(f"{model.name} on {hardware.name}", verdict, names, ranked, table, notes))
    outcomes = [*(one.outcome for one in ranked), *(one.outcome for one in measured)]
    return 0 if "fits" in outcomes and not failed else 1


def _largest(arguments: argparse.Namespace, hardware: Hardware, catalog: Catalog) -> int:
    """The largest model of the catalog with each strategy. Exit code 1 if with one of them none fits."""
    not_alone = ("emulated", "stack", "whole", "html", "target_length")
    if not arguments.strategy or any(getattr(arguments, name) for name in not_alone):
        raise UsageError("Without a MODEL, fit finds the largest one: it needs --strategy, and takes -b and -s alone.")
    batch, length = arguments.micro_batch or 1, arguments.sequence_length or SEQUENCE
    everywhere = True
    for strategy in arguments.strategy:
        cells = candidates(strategy, hardware, catalog, micro_batch=batch, sequence_length=length)
        with MemoryTracer(cores()) as tracer:
            found = search(cells, catalog, tracer, padded=not arguments.unpadded, fresh=arguments.fresh)
        best, samples = found.best, batches(cells[0].workload, not arguments.unpadded)
        name = f"{best.model.name} is the largest" if best else "No model"
        print(f"{name} of {len(cells)} that fits {hardware.name} with {strategy}: predicted, not measured; {samples}\n")
        print_table(_models(found))
        print(f"\n{found.larger} larger ones do not fit with their state alone.")
        everywhere &= best is not None
    return 0 if everywhere else 1


def _models(found: Search) -> Table:
    """A row for each model that was estimated."""
    table = bare_table("model", "parameters", "needs", "left", "")
    for cell, size in zip(found.cells, found.sizes, strict=True):
        if isinstance(size, Failure):
            table.add_row(cell.model.name, f"{cell.model.parameters:,}", "", "", f"not predicted: {size.message}")
            continue
        left = headroom(size) or 0
        shown = f"{_about(size)}{show_bytes(size.needed_bytes)}", f"{_about(size)}{show_bytes(left)}"
        table.add_row(cell.model.name, f"{cell.model.parameters:,}", *shown, "fits" if left >= 0 else "out of memory")
    return table


def _sizes(cells: Sequence[Cell], catalog: Catalog, arguments: argparse.Namespace) -> tuple[list[Size], bool]:
    """The memory of the cells in their order, and whether a trace failed."""
    padded, fresh = not arguments.unpadded, arguments.fresh
    each: Callable[..., Iterator[tuple[int, Any]]] = attempt_each if arguments.whole else sizes_each
    with MemoryTracer(cores()) as tracer:
        return collect(cells, each(cells, catalog, tracer, padded=padded, fresh=fresh), progress)


def _again(arguments: argparse.Namespace, model: str, hardware: Hardware, strategies: Sequence[str]) -> NoReturn:
    """Replace this process by the same command on emulated GPUs. Raises UsageError if they cannot run it."""
    if arguments.unpadded:
        raise UsageError("--emulated runs padded batches: leave out --unpadded.")
    lengths = given(arguments, "--micro-batch", "--sequence-length", "--target-length")
    again(hardware, arguments, "fit", model, "--hardware", hardware.name, *lengths, "--strategy", *strategies)


def _table(ranked: Sequence[Size], cells: Mapping[str, Cell], times: Mapping[str, PredictedTime]) -> Table:
    """A row for each strategy."""
    table = bare_table("strategy", "ranks", "needs", "left", "", *TITLES[:-1], "costs")
    for one in ranked:
        cell = cells[one.cell]
        left = headroom(one) or 0
        lacks = "" if isinstance(one, StateBound) else f"{_about(one)}{show_bytes(left)}"
        sizes = f"{_about(one)}{show_bytes(one.needed_bytes)}", lacks  # nobody knows how much more than the bound
        step, *speed, _ = entries(times[one.cell])
        step = f"– ({times[one.cell].untimed})" if times[one.cell].untimed else step
        fits = "fits" if left >= 0 else "out of memory"
        table.add_row(cell.strategy.name, str(one.world_size), *sizes, fits, step, *speed, costs(cell, one))
    return table


def _notes(ranked: Sequence[Size], times: Mapping[str, PredictedTime], stack: str | None) -> list[str]:
    """What a reader of the table must know."""
    notes = []
    if any(isinstance(one, StateBound) for one in ranked):
        notes.append("> is the state that lasts over a step alone, which does not fit. --whole traces all it needs.")
    if depths := next((one.layers for one in ranked if isinstance(one, Estimate)), None):
        notes.append(f"≈ is estimated from models of {depths[0]} and {depths[1]} layers. --whole traces all layers.")
    if stack:
        said = f"Steps are of full batches with {SOFTWARE[stack].says}."
        notes.append(f"{said} Memory is of transformers' layers with the strategy.")
    if any(times[one.cell].untimed for one in ranked):
        notes.append("– has no predicted step: none is known for what is in parentheses.")
    return notes


def _about(one: Size) -> str:
    return {Estimate: "≈ ", StateBound: "> "}.get(type(one), "")


def rank(found: Sequence[Size], times: Mapping[str, PredictedTime]) -> list[Size]:
    """Those that fit before those that do not; by tokens per second if they have a time, else by the bytes needed."""

    def key(one: Size) -> tuple[bool, float, int]:
        speed = times[one.cell].predicted_tokens_per_second
        return one.outcome != "fits", -speed, 0 if speed else one.needed_bytes

    return sorted(found, key=key)


def progress(number: int, all_: int, one: Size) -> None:
    """A line on stderr for every cell as soon as it is estimated or predicted."""
    size = f"{_about(one)}{show_bytes(one.needed_bytes)}, {one.outcome}"
    text = "not predicted" if one.outcome == "unsupported" else size
    print(f"[{number}/{all_}] {one.cell}: {text}", file=sys.stderr, flush=True)


def usual(device: Device, catalog: Catalog) -> list[str]:
    """The strategies that are tried if none is named: those of compiled steps on a device that takes no others."""
    engines = {strategy: catalog.get("engine", strategy.partition("+")[0]) for strategy in CHOICES.strategies}
    compiled = bool(device.topology)
    return [one for one, engine in engines.items() if PROCESSES[engine.process].compiled == compiled]


def is_of_use(cell: Cell) -> bool:
    """Whether a strategy that nobody named is worth its traces.

    An engine of several ranks divides nothing on one device, so there it must move tensors to the host.
    """
    engine = cell.strategy.engine
    many = engine.max_ranks != 1 and not PROCESSES[engine.process].compiled
    return not many or cell.hardware.world_size > 1 or moves_tensors(cell)


def possible(
    model: str, strategies: Sequence[str], hardware: Hardware, catalog: Catalog
) -> tuple[list[Cell], list[str]]:
    """The strategies on all ranks, or on one if they cannot have more; and why others are impossible."""
    cells, refused = [], []
    for strategy in strategies:
        alone = catalog.get("engine", strategy.partition("+")[0]).max_ranks == 1
        ranks = [hardware, dataclasses.replace(hardware, ranks=1, nodes=1)]
        reasons = []
        for where in ranks[::-1] if alone else ranks:
            try:
                cells.append(make_cell(model, strategy, where.name, catalog))
                break
            except Refused as error:
                reasons.append(str(error))
        else:
            refused.append(reasons[0])
    return cells, refused


def costs(cell: Cell, prediction: Size) -> str:
    """What the strategy costs in addition to memory; unknown costs are named as such."""
    engine = cell.strategy.engine.name
    names = [choice.technique.name for choice in cell.strategy.choices if not choice.technique.default]
    costs = [CHOICES.engines.get(engine, f"{engine}: unknown")]
    costs += [CHOICES.techniques.get(name, f"{name}: unknown") for name in names]
    costs += [f"{show_bytes(prediction.host_bytes)} per rank on the host"] if prediction.host_bytes else []
    return "; ".join(filter(None, costs)) or "nothing"
