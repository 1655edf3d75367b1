"""The cells that a command measures: those given, those with a baseline, or those that the tests here train."""

import argparse
import contextlib
import importlib.util
import io
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.catalog.cell import Cell, cells_meant, named_whole, parse_cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric, Model
from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.cli.ini import ini_of
from perfsuite.cli.shared_options import add_baselines, store_of
from perfsuite.errors import UsageError
from perfsuite.launch.machine import why_absent, why_missing
from perfsuite.units import show_several


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


@dataclass
class Collected:
    """What `pytest --perf` collects here: the cells' ids, the conftests' models and the folders of imports.

    It is a plugin of that pytest.
    """

    cells: list[str] = field(default_factory=list)
    models: tuple[Model, ...] = ()
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def pytest_collection_finish(self, session: Any) -> None:
        """Read them off. pytest resets the folders at its end."""
        found = [item.callspec.params.get("perf_cell") for item in session.items if hasattr(item, "callspec")]
        self.cells = list(dict.fromkeys(cell.id for cell in found if cell))
        config = session.config
        self.models = tuple(one for some in config.hook.pytest_perf_models(config=config) for one in some)
        self.import_path = tuple(sys.path)


def collect() -> Collected:
    """Collect the tests of the working folder as `pytest --perf` does. Raises UsageError if pytest cannot."""
    import pytest

    here, collected = Path.cwd(), Collected()
    if ini_of(here).path is None and not [*here.glob("conftest.py"), *here.glob("test_*.py")]:
        return collected  # no place of tests: pytest would search every folder below
    alone = ["-n0"] if importlib.util.find_spec("xdist") else []
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(["--perf", "--collect-only", "--quiet", *alone], plugins=[collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        reason = _why_uncollected(output.getvalue().splitlines()) or f"exit code {int(code)}"
        raise UsageError(f"pytest cannot collect the cells of this folder: {reason}. See pytest --perf --collect-only.")
    return collected


def _why_uncollected(lines: list[str]) -> str:
    """The first error that pytest printed: a traceback's last line, or the sentence below the name of a file."""
    traceback = [line for line in lines if line.startswith("E ")]
    below = [lines[at + 1] for at, line in enumerate(lines[:-1]) if "ERROR collecting" in line]
    others = [line for line in lines if line.startswith("ERROR")]
    first = next((some[0] for some in (traceback, below, others) if some), "")
    return " ".join(first.removeprefix("E ").removeprefix("ERROR").removeprefix(":").split())


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
