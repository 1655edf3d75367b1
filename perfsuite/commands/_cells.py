"""The cells that a command measures: those given, or those with a baseline that match an expression."""

import argparse

from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import cells_meant, parse_cell
from perfsuite.commands._base import add_baselines, store_of
from perfsuite.errors import UsageError
from perfsuite.launch.machine import why_absent, why_missing


def add_cells(parser: argparse.ArgumentParser) -> None:
    """``CELL …``, ``-k`` and ``--baselines``."""
    parser.add_argument("cells", nargs="*", metavar="CELL", help="Cells, e.g. gpt2_tiny-single-cpu_x1.")
    parser.add_argument("-k", metavar="EXPRESSION", help="Cells with a baseline whose id matches: 't5_tiny and bf16'.")
    add_baselines(parser)


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
    store = store_of(arguments)
    known = store.cells()
    picked = list(filter(cells_meant(arguments.k, known, catalog), known))
    if not picked:
        raise UsageError(
            f"-k {arguments.k!r} matches none of the {len(known)} cells with a baseline in {store.root}/."
            + hint(arguments.k, known)
        )
    absent = {cell: reason for cell in picked if (reason := _why_not(cell, catalog))}
    for cell, reason in absent.items():
        print(f"{cell}: skipped, {reason}")
    if len(absent) == len(picked):
        raise UsageError(f"-k {arguments.k!r} matches no cell that this machine can run.")
    return [cell for cell in picked if cell not in absent]


def _why_not(text: str, catalog: Catalog) -> str:
    cell = parse_cell(text, catalog)
    missing = why_missing(cell.strategy)
    return f"{missing}." if missing else why_absent(cell.hardware, catalog)
