"""Text that is HTML already, and the one way to make it: every value is escaped."""

import html
from collections.abc import Iterable

from perfsuite.show.text.tables import WHOLE

SHAPES = frozenset({"circle", "path", "rect"})  # of SVG; they have no inside


class Html(str):
    """A piece of HTML, which a template inserts as it is; it escapes every other text."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def tag(name: str, *inside: str, **attributes: object) -> Html:
    """``<name attributes>inside</name>``; a text that is not Html is escaped.

    An attribute's ``_`` stands for ``-``, and one at its end is dropped: ``class_``, ``stroke_width``. Attributes that
    are None are left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not inside and name in SHAPES:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(inside)}</{name}>")


def whole(text: str) -> str:
    """The text, as Html in which a narrow column breaks no date and no ``5.22.0 -> 5.23.0``, if it has any. What is
    HTML already stays.
    """
    if isinstance(text, Html) or not WHOLE.search(text):
        return text
    pieces, end = list[str](), 0
    for found in WHOLE.finditer(text):
        pieces += [text[end : found.start()], tag("span", found[0], class_="whole")]
        end = found.end()
    return join([*pieces, text[end:]])


def join(pieces: Iterable[str]) -> Html:
    """The pieces one after the other; those that are not Html are escaped."""
    return Html("".join(piece if isinstance(piece, Html) else html.escape(piece) for piece in pieces))


def _number(value: object) -> str:
    """Coordinates to a tenth of a pixel: more would only make the file larger."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
