"""``perfsuite memory MODEL``: how much memory a training needs on absent hardware, and for what."""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from perfsuite.catalog.cell import Cell, make_cell, parse_cell, parse_hardware, taken, why_too_long
from perfsuite.catalog.cell_id import is_meant_as_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import (
    add_html,
    add_shared,
    catalog_of,
    count,
    given,
    html_of,
    with_lengths,
    write_html,
)
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.beside_emulated import add_emulated, again, is_here, measure, show
from perfsuite.features.predict.memory_table import bar, batches, explain, largest, parts, ranking
from perfsuite.features.predict.own_model import find_model
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.prediction_pages import cells_page, memory_page
from perfsuite.features.predict.scripts import cell_of_command, is_command
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each, predict, trace_snapshot, unsupported
from perfsuite.features.predict.untraceable import why_no_operators, why_not_traced
from perfsuite.records.codec import write, write_bytes
from perfsuite.records.failure import Failure
from perfsuite.settings.keys import CATALOG
from perfsuite.show.text.tables import print_table
from perfsuite.system.machine import cores
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_bytes

HELP = "How much memory a training needs, and for what."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite memory t5_base --strategy zero2+bf16 --hardware rtx3090_x2",
    "perfsuite memory --hardware h100_x1 -- python train.py",
)
PAGE = "memory"
STARTS_PROCESSES = True
DOUBLINGS = 6  # of a sweep
BAR = 40
NOT_OF_SCRIPTS = (
    *("strategy", "micro_batch", "sequence_length", "target_length", "unpadded"),
    *("explain", "snapshot", "sweep", "html"),
)
T = TypeVar("T")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Micro-batch and lengths."""
    parser.add_argument("-b", "--micro-batch", type=count, metavar="N", help="Samples per forward (the model's own).")
    parser.add_argument("-s", "--sequence-length", type=count, metavar="N", help="Tokens per sample (the model's own).")
    parser.add_argument("-t", "--target-length", type=count, metavar="N", help="Tokens that a decoder generates.")
    text = "Batches without padding, like packed samples: attention then needs no mask."
    parser.add_argument("--unpadded", action="store_true", help=text)


def workload_of(arguments: argparse.Namespace, model: Model) -> Workload:
    """The model's workload with the options applied. Raises UsageError for an invalid or too long one."""
    return with_lengths(
        model,
        "A micro-batch and a length",
        micro_batch=arguments.micro_batch,
        sequence_length=arguments.sequence_length,
        target_length=arguments.target_length,
    )


def collect(
    cells: Sequence[Cell],
    results: Iterable[tuple[int, T | Prediction | Failure]],
    progress: Callable[[int, int, Any], None] = lambda *_: None,
) -> tuple[list[T | Prediction], bool]:
    """The results in the order of the cells, and whether a trace failed. A failed cell is not predicted, with the
    reason; the others are. ``progress`` is called for each as soon as it is known, with how many are, and of how many.
    """
    known: dict[int, T | Prediction] = {}
    failed = False
    for number, result in results:
        if isinstance(result, Failure):
            failed = True
            known[number] = unsupported(cells[number], f"its trace failed: {result.message}")
        else:
            known[number] = result
        progress(len(known), len(cells), known[number])
    return [known[number] for number in range(len(cells))], failed


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", nargs="+", metavar="MODEL", help=_MODEL)
    parser.add_argument("--strategy", metavar="S", help="Engine and techniques (single).")
    parser.add_argument("--hardware", metavar="H", help="Device and ranks, e.g. rtx3090_x2 (cpu_x1).")
    add_workload(parser)
    parser.add_argument("--explain", action="store_true", help="Explain the figure, from the usual estimate by hand.")
    text = "Write what the rank allocates, in torch's format, for docs.pytorch.org/memory_viz."
    parser.add_argument("--snapshot", type=Path, metavar="FILE.pickle", help=text)
    parser.add_argument("--sweep", choices=("batch", "seq"), help="Predict the cell for several of these.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the result as JSON.")
    add_html(parser)
    parser.add_argument("--fresh", action="store_true", help="Trace again, even if an earlier result is cached.")
    add_emulated(parser, "Run the cell on emulated GPUs, too, and compare: `perfsuite emulate --help`.")
    add_shared(parser, CATALOG)


_MODEL = "A model, a config.json or its folder, a whole cell's id, or -- and the command of your own script."


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction. Exit code 1 if it does not fit or cannot be predicted."""
    catalog, words = catalog_of(arguments), arguments.model
    arguments.model = words[0]
    check_output("--json", arguments.json)
    if is_command(words):
        cell, catalog = cell_of_command(words, arguments.hardware, catalog)
        return _script(cell, arguments, catalog, words)
    _check_options(arguments)
    page = html_of(arguments)
    cell = cell_of(arguments, catalog)
    if cell.model.command:
        return _script(cell, arguments, catalog)
    if arguments.sweep:
        return _sweep(cell, arguments, catalog, page)
    if arguments.emulated and not is_here():
        again(cell.hardware, arguments, "memory", *_named(cell, arguments), *given(arguments, "--json"))
    _check_snapshot(cell, arguments)
    (prediction,) = predict([cell], catalog, padded=not arguments.unpadded, fresh=arguments.fresh)
    if arguments.emulated:
        return show(cell, prediction, measure([cell], catalog)[0], arguments.json)
    if arguments.json:
        write(arguments.json, prediction)
    if prediction.outcome == "unsupported":
        raise Refused(f"{cell.id} cannot be predicted: {prediction.reason}")
    print(f"{cell.id}: predicted, not measured; {batches(cell.workload, not arguments.unpadded)}")
    if arguments.hardware not in (None, cell.hardware.name):
        print(f"{cell.strategy.engine.name} trains on one device of {arguments.hardware}.")
    print()
    print_table(parts(prediction))
    print()
    print("\n".join(bar(prediction)))
    if prediction.held:
        print()
        print_table(largest(prediction))
    explanation = explain(prediction, cell.model.parameters)
    if arguments.explain:
        print()
        print("\n".join(explanation))
    write_html(page, memory_page(prediction, explanation))
    if arguments.snapshot:
        snapshot = trace_snapshot(cell, prediction.rank, catalog, not arguments.unpadded)
        write_bytes(arguments.snapshot, snapshot)
        print(f"\n{arguments.snapshot} is written: open it in https://docs.pytorch.org/memory_viz.")
    return 0 if prediction.outcome == "fits" else 1


def _named(cell: Cell, arguments: argparse.Namespace) -> list[str]:
    """The words that name the cell in another process, which does not know the name of a config's model."""
    if is_meant_as_cell(arguments.model) or arguments.model == cell.model.name:
        return [cell.id]
    where = ["--strategy", cell.strategy.name, "--hardware", cell.hardware.name]
    return [arguments.model, *where, *given(arguments, "--micro-batch", "--sequence-length", "--target-length")]


def _script(cell: Cell, arguments: argparse.Namespace, catalog: Catalog, words: Sequence[str] = ()) -> int:
    """Run the script on emulated devices. ``words`` are its command, if it is not one of the project's."""
    if any(getattr(arguments, name) for name in NOT_OF_SCRIPTS):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in NOT_OF_SCRIPTS)
        raise UsageError(f"A script has its own model and batches: leave out {options}.")
    if not is_here():
        json = given(arguments, "--json")
        if words:
            again(cell.hardware, arguments, "memory", "--hardware", cell.hardware.name, *json, script=words)
        again(cell.hardware, arguments, "memory", cell.id, *json)
    return show(cell, unsupported(cell, why_not_traced(cell)), measure([cell], catalog)[0], arguments.json)


def _check_snapshot(cell: Cell, arguments: argparse.Namespace) -> None:
    """Raise Refused for the snapshot of a cell whose storages are not known one by one."""
    if arguments.snapshot and (reason := why_no_operators(cell)):
        raise Refused(f"{cell.id} has no snapshot: {reason}")


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError for an option that would have no effect."""
    given = ("strategy", "hardware", "micro_batch", "sequence_length", "target_length")
    if is_meant_as_cell(arguments.model) and any(getattr(arguments, name) is not None for name in given):
        raise UsageError(
            f"{arguments.model} is a whole cell's id, which includes strategy, hardware and workload (-b4-s512)."
        )
    if arguments.sweep and (arguments.explain or arguments.snapshot):
        raise UsageError("--explain and --snapshot are for one cell, --sweep is for several.")
    if arguments.emulated and any(
        (arguments.sweep, arguments.explain, arguments.snapshot, arguments.unpadded, arguments.html)
    ):
        raise UsageError("--emulated is for one cell with padded batches: leave out the other options.")
    check_output("--snapshot", arguments.snapshot, ".pickle")


def cell_of(arguments: argparse.Namespace, catalog: Catalog) -> Cell:
    """The cell that the options name; ``single`` takes one of several devices. Raises UsageError if there is none."""
    if is_meant_as_cell(arguments.model):
        return parse_cell(arguments.model, catalog)
    strategy = "single" if arguments.strategy is None else arguments.strategy
    hardware = "cpu_x1" if arguments.hardware is None else arguments.hardware
    parse_hardware(hardware, catalog)
    hardware = taken(catalog.get("engine", strategy.partition("+")[0]), hardware)
    cell = make_cell(find_model(arguments.model, catalog).name, strategy, hardware, catalog)
    return parse_cell(dataclasses.replace(cell, workload=workload_of(arguments, cell.model)).id, catalog)


def _sweep(cell: Cell, arguments: argparse.Namespace, catalog: Catalog, page: Path | None) -> int:
    cells, names = _variants(cell, arguments)
    with MemoryTracer(cores()) as tracer:
        each = attempt_each(cells, catalog, tracer, padded=not arguments.unpadded, fresh=arguments.fresh)
        found, failed = collect(cells, each)
    first = batches(cells[0].workload, not arguments.unpadded)
    print(f"{cell.id} by {arguments.sweep}: predicted, not measured; from {first}")
    print()
    table = ranking(found, names)
    print_table(table)
    if arguments.sweep == "seq" and len(cells) < DOUBLINGS:
        print(f"\n{cell.model.name} has learned {cell.model.positions:,} positions, so no sequence can be longer.")
    print()
    most = max((one.needed_bytes for one in found if one.outcome != "unsupported"), default=1)
    width = max(map(len, names))
    for name, one in zip(names, found, strict=True):
        if one.outcome != "unsupported":
            print(
                f"{name:{width}}  {'█' * max(1, round(BAR * one.needed_bytes / most))} {show_bytes(one.needed_bytes)}"
            )
    fitting = sum(one.outcome == "fits" for one in found)
    verdict = f"{fitting} of {len(found)} fit by {arguments.sweep}, from {names[0]} to {names[-1]}."
    write_html(page, cells_page(f"{cell.id} by {arguments.sweep}", verdict, names, found, table))
    return int(failed)


def _variants(cell: Cell, arguments: argparse.Namespace) -> tuple[list[Cell], list[str]]:
    """The cells of a sweep, and the name of each in it. Lengths end with the model's learned positions."""
    field, letter = {"batch": ("micro_batch", "b"), "seq": ("sequence_length", "s")}[arguments.sweep]
    first = getattr(cell.workload, field) if arguments.sweep == "batch" else max(1, getattr(cell.workload, field) // 4)
    works = [dataclasses.replace(cell.workload, **{field: first * 2**power}) for power in range(DOUBLINGS)]
    works = [work for work in works if not why_too_long(cell.model, work)]
    cells = [dataclasses.replace(cell, workload=work) for work in works]
    return cells, [f"{letter}{getattr(work, field)}" for work in works]
