"""One self-contained HTML file of sections: it needs no network, and runs no script but its own.

The templates escape every text, and the browser runs only the script whose hash the page names. So text of a hostile
branch stays text.
"""

import base64
import functools
import hashlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from rich.table import Table as TextTable
from rich.text import Text

from perfsuite.errors import FileError, UsageError
from perfsuite.records.codec import write_bytes
from perfsuite.records.formats import timestamp
from perfsuite.show.html.markup import Html, whole
from perfsuite.system.paths import check_output

Kind = str  # "measured", or another that a result has; empty for none. The style has a class of its name
Tone = Literal["red", "yellow", "green", "blue", "muted", ""]
OPTION = "--html"
WIDE = 40  # characters of an entry from which on its column has a phone's whole width
STACKED = 3  # a table with more columns has rows as blocks on a phone
MISSING = "{} needs jinja2: pip install 'perfsuite[report]'."


@dataclass(frozen=True)
class PageEntry:
    """One entry of a table. ``sort`` orders it instead of the text, ``link`` is the id that it leads to. ``kind``: a
    number that was not measured looks different.
    """

    text: str
    sort: float | None = None
    tone: Tone = ""
    link: str = ""
    chart: Html = Html()  # noqa: RUF009  it never changes
    wide: bool = False
    kind: Kind = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; its columns can be sorted, and it can be searched, if it has a ``name``. ``choose`` is a column, from 0
    on, one of whose texts can be chosen. ``numbers`` are the columns that are aligned right, and ``below`` the rows
    that belong to the one above them.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | PageEntry]]
    caption: str = ""
    name: str = ""
    choose: int | None = None
    numbers: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()

    @classmethod
    def of(cls, table: TextTable, caption: str = "") -> "Table":
        """A table that a terminal gets, with the same texts."""
        columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
        numbers = {index for index, column in enumerate(columns) if index and any(column) and _numeric(column)}
        shown = [
            [PageEntry(one, wide=True) for one in column] if any(len(one) > WIDE for one in column) else column
            for column in columns
        ]
        rows = list(zip(*shown, strict=True))
        return cls(
            head=[_plain(one.header) for one in table.columns], rows=rows, caption=caption, numbers=frozenset(numbers)
        )

    @property
    def classes(self) -> str:
        """Of the table's element: its columns of numbers, and whether its rows become blocks on a phone."""
        stack = ["stack"] * (len(self.head) > STACKED)
        return " ".join([*(f"n{column}" for column in sorted(self.numbers)), *stack])

    @property
    def choices(self) -> list[str]:
        """The texts of the column to choose from."""
        if self.choose is None:
            return []
        return sorted(
            {one.text if isinstance(one, PageEntry) else one for one in (row[self.choose] for row in self.rows)}
        )


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with a button that copies it; ``what`` it does."""

    what: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, sentences, and what shows them. ``kind`` labels its numbers: measured, predicted or emulated.

    ``folded`` sections are closed at first. A ``badge`` has the ``tone``, and so has the border that is then drawn
    around the section. ``text`` is shown as it is, in lines. ``inside`` are sections of the next level, ``links`` are
    sentences with links.
    """

    heading: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Html] = ()
    commands: Sequence[Command] = ()
    links: Sequence[Html] = ()
    text: str = ""
    kind: Kind = ""
    tone: Tone = ""
    folded: bool | None = None
    anchor: str = ""
    badge: str = ""
    inside: Sequence["Section"] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Document:
    """A page. ``verdict`` is its first sentence, ``facts`` are smaller ones below it, ``links``
    lead to other pages."""

    title: str
    verdict: str
    sections: Sequence[Section]
    facts: Sequence[str] = ()
    links: Sequence[Html] = ()
    tone: Tone = ""
    kind: Kind = ""


def check_html(option: str, path: Path | None) -> None:
    """Raise UsageError before any work for a page that could not be written, or without jinja2."""
    if path is None:
        return
    check_output(option, path, ".html")
    if importlib.util.find_spec("jinja2") is None:
        raise UsageError(MISSING.format(option))


def write(path: Path, document: Document) -> None:
    """Write the page atomically. Raises FileError if it cannot be written."""
    page = render(document)
    try:
        write_bytes(path, page)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error


def render(document: Document, scripts: Iterable[str] = ()) -> bytes:
    """The page, with its own style and script, and more ``scripts``."""
    own = [read("page.js"), *scripts]
    style = read("page.css")
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {' '.join(map(_hash, own))}"
    text: str = (
        _templates()
        .get_template("sections.html")
        .render(page=document, style=Html(style), scripts=[Html(script) for script in own], policy=policy, now=now())
    )
    return text.encode()


def environment(package: str, folder: str, **options: Any) -> Any:
    """Jinja's for the templates in a package's folder, with every unknown name refused."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(package, folder)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


@functools.cache
def _templates() -> Any:
    """Those of pages, with every text escaped; they are compiled once."""
    known = environment("perfsuite.show.html", "templates", autoescape=True)
    known.filters["whole"] = whole
    known.tests["entry"] = lambda one: isinstance(one, PageEntry)
    return known


def read(name: str) -> str:
    """A file beside the templates."""
    return (resources.files("perfsuite.show.html") / "templates" / name).read_text()


def now() -> str:
    """The date of the page, to the minute."""
    return timestamp()[:16].replace("T", " ") + " UTC"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _plain(text: object) -> str:
    return text.plain if isinstance(text, Text) else str(text)


def _numeric(column: Sequence[str]) -> bool:
    """Whether all texts that are not empty begin like a number, or with the dash of one that is absent."""
    return all(not text or text.lstrip("+-±~≈<>≥ ")[:1].isdigit() or text[0] == "–" for text in column)
