"""Tables for people: what a narrow terminal and a narrow page leave whole."""

import html
import re

import pytest
from rich.console import Console

from perfsuite.show.html.markup import Html, whole
from perfsuite.show.text import tables

RELEASES, SIZES, DATE = "5.22.0 → 5.23.0", "20.00 GiB -> 21.94 GiB", "2026-11-23"


def printed(monkeypatch, capsys, width):
    """A table of an upgrade in a terminal of so many columns."""
    monkeypatch.setattr(
        tables, "Console", lambda width=width: Console(width=width, force_terminal=True, color_system=None)
    )
    table = tables.bare_table("library", "release", "what", "from → to", "date")
    table.add_row("transformers", RELEASES, "peak memory of the whole long and tedious step", SIZES, DATE)
    tables.print_table(table)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [140, 100, 90])
def test_a_narrow_terminal_breaks_words_first(monkeypatch, capsys, width):
    """Dates and both sides of an arrow stay on one line while every column has room for its longest word."""
    text = printed(monkeypatch, capsys, width)

    assert all(one in text for one in ("transformers", RELEASES, SIZES, DATE))
    assert max(map(len, text.splitlines())) <= width


def test_a_terminal_that_is_too_narrow_for_them_breaks_them(monkeypatch, capsys):
    """Nothing is wider than the terminal, and no odd character is left."""
    text = printed(monkeypatch, capsys, 50)

    assert max(map(len, text.splitlines())) <= 50
    assert text.isprintable() or set(filter(lambda one: not one.isprintable(), text)) == {"\n"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"caused by torch {RELEASES} alone", [RELEASES]),
        (f"peak memory {SIZES}, on {DATE}.", [SIZES, f"{DATE}"]),
        (f"{DATE} 02:17 UTC", [f"{DATE} 02:17 UTC"]),
        ("a -> b", ["a -> b"]),
        ("412 ms -> 408 ms alone", ["412 ms -> 408 ms"]),
        ("nothing", []),
    ],
)
def test_a_page_marks_what_must_stay_whole(text, kept):
    """In a text, which is escaped; HTML is left alone."""
    marked = whole(text)

    assert re.findall(r'<span class="whole">(.*?)</span>', html.unescape(marked)) == kept
    assert whole(Html("<b>a -> b</b>")) == "<b>a -> b</b>"
    assert whole("<i> 1 -> 2") == '&lt;i&gt; <span class="whole">1 -&gt; 2</span>'
