"""Tables for people: one line per row; as wide as the terminal, or as wide as needed in a file or a pipe."""

from collections.abc import Callable

from rich.console import Console
from rich.measure import Measurement as Width
from rich.table import Table

UNBOUNDED = 10_000  # columns; no table is that wide


def bare_table(*columns: str) -> Table:
    """A table without lines."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def width_of(table: Table) -> int:
    """The columns that the table needs if nothing is broken."""
    console = Console(width=UNBOUNDED)
    return Width.get(console, console.options, table).maximum


def print_table(table: Table) -> None:
    """A terminal breaks long texts; a pipe does not."""
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        _print_whole(console, table)


def print_fitting(make: Callable[[str], Table]) -> None:
    """Print ``make(" ")``, or the narrower ``make("\\n")`` if the terminal is too narrow."""
    console, wide = Console(), make(" ")
    _print_whole(console, make("\n") if console.is_terminal and width_of(wide) > console.width else wide)


def _print_whole(console: Console, table: Table) -> None:
    """Without line breaks in cells and without blanks at line ends."""
    console.width = max(console.width, width_of(table))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
