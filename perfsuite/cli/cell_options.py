"""The cells that a command measures: those given, those with a baseline, or those that the tests here train."""

import argparse
from collections import Counter

from perfsuite.catalog.cell import Cell, cells_meant, named_whole, parse_cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.cli.collected import Collected
from perfsuite.cli.shared_options import add_shared, known_store_of
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import why_absent, why_missing
from perfsuite.settings.keys import BASELINES
from perfsuite.system.units import show_several


def add_cells(parser: argparse.ArgumentParser) -> None:
    """``CELL …``, ``-k`` and ``--baselines``."""
    parser.add_argument("cells", nargs="*", metavar="CELL", help="Cells, e.g. gpt2_tiny-single-cpu_x1.")
    parser.add_argument("-k", metavar="EXPRESSION", help="Cells with a baseline whose id matches: 't5_tiny and bf16'.")
    add_shared(parser, BASELINES)


def cells_of(arguments: argparse.Namespace, catalog: Catalog) -> list[str]:
    """The ids. Raises UsageError if there are none, if this machine can run none, or if it cannot run a named one.

    Cells for other hardware that -k selects are skipped, as in pytest, and printed.
    """
    if bool(arguments.cells) == (arguments.k is not None):
        raise UsageError("Name the cells, or select some with -k, but not both.")
    if arguments.cells:
        named = list(dict.fromkeys(parse_cell(text, catalog).id for text in arguments.cells))
        for cell in named:
            reason = _why_not(cell, catalog)
            if reason:
                raise UsageError(f"{cell}: {reason}")
        return named
    store = known_store_of(arguments)
    known = store.cells()
    picked = list(filter(cells_meant(arguments.k, known, catalog), known))
    if not picked:
        cells = f"none of the {show_several(len(known), 'cell')} with a baseline in {store.root}/"
        raise UsageError(f"-k {arguments.k!r} matches {cells}." + hint(arguments.k, known))
    absent = {cell: reason for cell in picked if (reason := _why_not(cell, catalog))}
    for cell, reason in absent.items():
        print(f"{cell}: skipped, {reason}")
    if len(absent) == len(picked):
        raise UsageError(f"-k {arguments.k!r} matches no cell that this machine can run.")
    return [cell for cell in picked if cell not in absent]


# One cell for each library that a release may change, without dropout, whose random numbers may change.
SAMPLE = (
    "gpt2_tiny-ddp+acc2+nodrop+hf_trainer-cpu_x2",
    "t5_tiny-ddp+acc2+nodrop+accelerate-cpu_x2",
    "gpt2_tiny-zero2+bf16+nodrop-cpu_x2",
    "llama_tiny-zero3+bf16+nodrop-cpu_x2",
    "llama_tiny-fsdp2+bf16+nodrop-cpu_x2",
    "gpt2_tiny-ddp+lora+nodrop-cpu_x2",
    "gpt2_tiny-ddp+adamw8bit+nodrop-cpu_x2",
    "gpt2_tiny-ddp+adamw8bit_ao+nodrop-cpu_x2",
)


def selected(expression: str, catalog: Catalog, found: Collected) -> list[Cell]:
    """The cells of the tests that ``-k`` selects, or of the SAMPLE if there are none; whole ids may name any cell.

    Cells that cannot run here are skipped and counted. Raises UsageError if none is left.
    """
    known = found.cells or list(SAMPLE)
    whole = named_whole(expression, known, catalog) if expression else set()
    picked = sorted(whole) or list(filter(cells_meant(expression, known, catalog), known))
    if not picked:
        where = "the tests here" if found.cells else "the sample"
        raise UsageError(
            f"-k {expression!r} matches none of the {show_several(len(known), 'cell')} of {where}."
            + hint(expression, known)
        )
    absent = {cell: reason for cell in picked if (reason := _why_not(cell, catalog))}
    for reason, count in Counter(absent.values()).items():
        print(f"{count} {'cell' if count == 1 else 'cells'} skipped: {reason}")
    if len(absent) == len(picked):
        raise UsageError("This machine can run none of the chosen cells.")
    return [parse_cell(cell, catalog) for cell in picked if cell not in absent]


def metrics_of(cell_id: str, catalog: Catalog) -> list[Metric]:
    """From the strategy alone: the model may be a conftest's, which the catalog does not know."""
    return catalog.metrics(parse_strategy(CellId.parse(cell_id).strategy, catalog).engine.process)


def _why_not(text: str, catalog: Catalog) -> str:
    cell = parse_cell(text, catalog)
    missing = why_missing(cell.strategy)
    return f"{missing}." if missing else why_absent(cell.hardware, catalog)
