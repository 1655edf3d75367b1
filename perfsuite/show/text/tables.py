"""Tables for people: one line per row; as wide as the terminal, or as wide as needed in a file or a pipe.

A Body is a table as texts: the head, then a row per line. A row of a single entry is a line across all columns. Numbers
are never broken, so a table has several layouts.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.measure import Measurement as Width
from rich.table import Table

UNBOUNDED = 10_000  # columns; no table is that wide
SENTENCES = 120  # columns of a table of sentences in a pipe
GAP = "  "
WORDS = ("cell", "predicted cell", "status", "outcome", "why", "regime")  # columns of words; all others have numbers
ANSI = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}

# What a narrow column must not break: a date, and from what to what something changed, with a unit.
_SIDE = r"(?:[\d.,]+ (?=[A-Za-zµ%]))?[^\s,;()]{1,20}"
_UNIT = r"(?: (?:[KMGT]?i?B|[mnµ]?s|[GT]FLOP(?:/s)?|%)(?![\w]))?"
WHOLE = re.compile(rf"\b\d{{4}}-\d\d-\d\d(?: \d\d:\d\d(?: UTC)?)?|{_SIDE} (?:->|→) [^\s,;()]{{1,20}}{_UNIT}")
_KEPT = "\ue000"  # a blank at which rich does not break: it has no name of its own for one

Body = list[list[str]]


def bare_table(*columns: str) -> Table:
    """A table without lines."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def width_of(table: Table) -> int:
    """The columns that the table needs if nothing is broken."""
    return _widths_of(table).maximum


def _widths_of(table: Table) -> Width:
    console = Console(width=UNBOUNDED)
    return Width.get(console, console.options, table)


def print_table(table: Table) -> None:
    """A terminal breaks long texts, and a date or ``5.22.0 -> 5.23.0`` only if it is too narrow for the longest words
    of all columns; a pipe breaks nothing.
    """
    console = Console()
    if not console.is_terminal:
        _print_whole(console, table)
        return
    kept = _kept(table)
    fits = _widths_of(kept).minimum <= console.width
    with console.capture() as captured:
        console.print(kept if fits else table)
    print(captured.get().replace(_KEPT, " "), end="")


def _kept(table: Table) -> Table:
    """The table with texts in which rich breaks nothing that must stay whole. It narrows no column of such texts."""
    made, columns = bare_table(), []
    for column in table.columns:
        texts = [_whole(cell) if isinstance(cell, str) else cell for cell in column.cells]
        fixed = any(WHOLE.search(str(cell)) for cell in column.cells) and all(" " not in str(text) for text in texts)
        width = max(len(str(one)) for one in (column.header, *texts)) if fixed else None
        made.add_column(column.header, justify=column.justify, style=column.style, width=width)
        columns.append(texts)
    for row in zip(*columns, strict=True):
        made.add_row(*row)
    return made


def _whole(text: str) -> str:
    return WHOLE.sub(lambda found: found[0].replace(" ", _KEPT), text)


def print_sentences(table: Table) -> None:
    """A table whose entries are sentences: a pipe breaks them too, at SENTENCES columns."""
    console = Console()
    if not console.is_terminal:
        console.width = min(SENTENCES, width_of(table))
    _print(console, table)


def print_fitting(make: Callable[[str], Table]) -> None:
    """Print ``make(" ")``, or the narrower ``make("\\n")`` if the terminal is too narrow."""
    console, wide = Console(), make(" ")
    _print_whole(console, make("\n") if console.is_terminal and width_of(wide) > console.width else wide)


def _print_whole(console: Console, table: Table) -> None:
    """Without line breaks in cells and without blanks at line ends."""
    console.width = max(console.width, width_of(table))
    _print(console, table)


def _print(console: Console, table: Table) -> None:
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def without(body: Body, title: str) -> Body:
    """The table without that column."""
    at = body[0].index(title)
    return [[*row[:at], *row[at + 1 :]] for row in body]


def headed(body: Body) -> Body:
    """Each cell has two lines: its id with its status, and the rest."""
    (_, _, *titles), *cells = body
    return [["", *titles], *(row for cell, state, *rest in cells for row in ([f"{cell}{GAP}{state}"], ["", *rest]))]


def fitted(layouts: Iterable[tuple[Body, Sequence[str]]], width: int) -> tuple[Body, Sequence[str]]:
    """The first of these (table, titles that it lacks) that fits into ``width`` columns, or else the last."""
    for layout in layouts:
        if max(map(len, text_of(layout[0]).splitlines())) <= width:
            break
    return layout


def text_of(body: Body, colors: Sequence[tuple[str, str]] = ()) -> str:
    """The table as text without blanks at line ends. Words are aligned left, and numbers right; an entry may have
    several lines. ``colors`` are each row's status and its color, for a terminal.
    """
    widths, lines = _widths(body), list[str]()
    for number, row in enumerate(body):
        entries = [entry.split("\n") for entry in row]
        for at in range(max(map(len, entries))):
            parts = []
            for title, width, texts in zip(body[0], widths, entries, strict=len(row) > 1):
                text = texts[at] if at < len(texts) else ""
                parts.append(text.ljust(width) if title in WORDS else text.rjust(width))
            line = GAP.join(parts).rstrip()
            if colors and number:  # a cell may have several rows
                line = _colored(line, *colors[(number - 1) * len(colors) // (len(body) - 1)])
            lines.append(line)
    return "\n".join(lines)


def _colored(line: str, status: str, color: str) -> str:
    """The line with its status in color, which follows the cell's id or has a line of its own."""
    return line.replace(f" {status}", f" \x1b[{ANSI[color]}m{status}\x1b[0m", 1)


def _widths(body: Body) -> list[int]:
    """Of each column; a line across all columns needs none of them."""
    head, *_ = body
    rows = [row for row in body if len(row) == len(head)]
    return [max(len(line) for row in rows for line in row[at].split("\n")) for at in range(len(head))]
