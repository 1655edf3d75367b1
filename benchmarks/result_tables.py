"""Tables of results: docs/data/NAME.csv, which a page shows where it links to the file in a line of its own."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfsuite.records.codec import write_bytes

DATA = Path(__file__).parents[1] / "docs" / "data"


def write_table(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], folder: Path = DATA) -> Path:
    """Write one table. Every row has as many cells as there are columns. Returns the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        assert len(row) == len(columns), f"{name}: {row} has not the columns {columns}."
        writer.writerow(row)
    path = folder / f"{name}.csv"
    write_bytes(path, text.getvalue().encode())
    return path


def read_table(name: str, folder: Path = DATA) -> list[dict[str, str]]:
    """The rows of a table that is there, by column."""
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
