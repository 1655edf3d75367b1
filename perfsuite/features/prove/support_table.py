"""The support table in the terminal."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perfsuite.catalog.registry import Catalog
from perfsuite.features.prove.compatibility.pages import Matrix, matrix
from perfsuite.features.prove.compatibility.pairs import claims
from perfsuite.features.prove.compatibility.proofs import load
from perfsuite.show.text.tables import bare_table, print_table, width_of
from perfsuite.system.units import some

DEFAULT = Path("docs", "support.json")
MOST_NAMED = 10


def add_file(parser: argparse.ArgumentParser) -> None:
    """``--file``."""
    text = f"The proofs of benchmarks/support.py ({DEFAULT})."
    parser.add_argument("--file", type=Path, default=DEFAULT, metavar="JSON", help=text)


def print_support(catalog: Catalog, path: Path) -> None:
    """The matrix, the reasons, and what the last run does not prove for these versions."""
    known = load(path)  # before the catalog is searched, which takes seconds
    table = matrix(catalog, claims(catalog), known)
    console = Console()
    for part in _parts(table, console.width if console.is_terminal else None):
        print_table(part)
        print()
    for symbol, meaning in table.legend:
        print(f"{symbol:7} {meaning}")
    print()
    for number, reason in enumerate(table.reasons, 1):
        print(f"{number:3}. {reason}")
    print()
    print(_proven(table, path))


def _parts(table: Matrix, width: int | None) -> list[Table]:
    """The matrix in as many pieces as needed to fit the width."""
    engines, parts = list(table.engines), []
    while engines:
        count = len(engines)
        while width is not None and count > 1 and width_of(_part(table, engines[:count])) > width:
            count -= 1
        parts.append(_part(table, engines[:count]))
        engines = engines[count:]
    return parts


def _part(table: Matrix, engines: list[str]) -> Table:
    part = bare_table("", *engines)
    for technique in table.techniques:
        part.add_row(technique.name, *(table.symbols[engine, technique.name] for engine in engines))
    return part


def _proven(table: Matrix, path: Path) -> str:
    """How much the last run proves."""
    if not table.unproven:
        return f"All {len(table.symbols)} entries are proven by {path} with the installed versions."
    named = [f"{engine} × {technique}" for engine, technique in table.unproven]
    return (
        f"{len(table.unproven)} of {len(table.symbols)} entries are not proven by {path} with the installed versions: "
        f"{some(named, MOST_NAMED)}. Prove them: python benchmarks/support.py"
    )
