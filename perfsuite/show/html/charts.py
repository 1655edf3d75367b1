"""Bars as inline SVG: stacked by part, or one per value with its interval. Pure functions, no network, no script.

A chart is 360 units wide, which is a phone's width, so that its text is readable there too. Colours are classes, which
the page's CSS defines for dark and light. Every chart has a text for screen readers; its numbers are in its legend and
labels or in the table beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from perfsuite.records.suspects import part_name
from perfsuite.show.html.axes import Quantity, tick_text, ticks
from perfsuite.show.html.markup import Html, join, tag

WIDTH, EDGE = 360.0, 6.0  # of a chart, and the margin at both sides
ROW, BAR = 36.0, 15.0  # of a bar with its label above
COLORS = 11  # classes f0 … f10 and l0 … l10
MEASURED = "measured"
NOTHING = Html()


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One bar of ``parts``; ``text`` is at its end instead of the sum. ``kind``: measured, predicted or emulated."""

    label: str
    parts: Mapping[str, float]
    text: str = ""
    kind: str = MEASURED


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One value and its interval, with a ``color`` from 0 on; None is a bar that is missing, for which ``text`` says
    why.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    color: int = 0
    kind: str = MEASURED


def stacked_bars(
    title: str,
    stacks: Sequence[Stack],
    quantity: Quantity,
    *,
    colors: Sequence[str] = (),
    limit: tuple[str, float] | None = None,
    note: str = "",
) -> Html:
    """Horizontal bars, one per stack, of parts in the order of ``colors``. ``limit`` is a line across all, such as a
    capacity; it is a sentence if the bars are a small part of it, since nothing could be seen. ``note`` is told below.
    """
    names = [*colors, *dict.fromkeys(name for stack in stacks for name in stack.parts if name not in colors)]
    used = [name for name in names if any(stack.parts.get(name) for stack in stacks)]
    most = max((sum(stack.parts.values()) for stack in stacks), default=0)
    near = limit is not None and most * 4 >= limit[1]
    frame = Frame(max(most, limit[1]) if near and limit else most, quantity, len(stacks))
    pieces, labels = frame.axis(), []
    for number, stack in enumerate(stacks):
        top, left = frame.top(number), EDGE
        labels.append(frame.label(number, stack.label, stack.text or quantity.show(sum(stack.parts.values()))))
        for name in used:
            width = frame.width(stack.parts.get(name, 0))
            if width > 0:
                tip = tag("title", f"{part_name(name)} {quantity.show(stack.parts[name])}")
                pieces.append(_bar(left, top, width, names.index(name), stack.kind, tip))
            left += width
    if limit and near:
        pieces.append(frame.limit(limit[1]))
    pieces += labels  # over the limit's line
    notes = [f"{limit[0]}: {quantity.show(limit[1])}"] if limit else []
    if limit and not near and most:
        notes = [f"{notes[0]}, of which at most {100 * most / limit[1]:.2g} % is used"]
    label = "; ".join(f"{stack.label} {stack.text or quantity.show(sum(stack.parts.values()))}" for stack in stacks)
    picture = svg(f"{title}: {label}", frame.height, pieces, _kind(stacks))
    legend = key([(names.index(name), part_name(name)) for name in used])
    return figure(title, picture, legend, [*notes, *filter(None, [note])])


def bars(title: str, shown: Sequence[Bar], quantity: Quantity, legend: Sequence[str] = ()) -> Html:
    """Horizontal bars from zero, each with its interval if it has one. ``legend`` names the colours, from 0 on."""
    most = max((max(bar.value or 0, bar.high or 0) for bar in shown), default=0)
    frame = Frame(most, quantity, len(shown))
    pieces = frame.axis()
    for number, bar in enumerate(shown):
        top, text = frame.top(number), bar.text or ("" if bar.value is None else quantity.show(bar.value))
        pieces.append(frame.label(number, bar.label, text))
        if bar.value is None:
            continue
        pieces.append(_bar(EDGE, top, frame.width(bar.value), bar.color % COLORS, bar.kind))
        if bar.low is not None and bar.high is not None:
            ends, middle = [EDGE + frame.width(end) for end in (bar.low, bar.high)], top + BAR / 2
            path = f"M{ends[0]:.1f} {middle - 4}v8M{ends[0]:.1f} {middle}H{ends[1]:.1f}M{ends[1]:.1f} {middle - 4}v8"
            pieces.append(tag("path", d=path, class_="whisker"))
    label = "; ".join(f"{bar.label} {bar.text or (quantity.show(bar.value) if bar.value else 'none')}" for bar in shown)
    picture = svg(f"{title}: {label}", frame.height, pieces, _kind(shown))
    return figure(title, picture, key(list(enumerate(legend))) if len(legend) > 1 else NOTHING, [])


class Frame:
    """The place of horizontal bars from zero to ``most``, and their axis below."""

    def __init__(self, most: float, quantity: Quantity, rows: int) -> None:
        self.most, self.quantity, self.rows = most or 1.0, quantity, rows
        self.bottom = rows * ROW + 4
        self.height = self.bottom + 32

    def top(self, row: int) -> float:
        """The upper edge of a bar."""
        return row * ROW + 17

    def width(self, value: float) -> float:
        """The length of a bar."""
        return max(0.0, value) / self.most * (WIDTH - 2 * EDGE)

    def axis(self) -> list[Html]:
        """Lines at round numbers, and the title with its unit."""
        _, size = self.quantity.unit(self.most)
        grid, texts = "", []
        for at in ticks(0, self.most / size):
            x = EDGE + self.width(at * size)
            grid += f"M{x:.1f} 14V{self.bottom:.0f}"
            anchor = "t" if x < 20 else "t e" if x > WIDTH - 20 else "t m"
            texts.append(tag("text", tick_text(at), x=x, y=self.bottom + 12, class_=anchor))
        title = tag("text", self.quantity.axis(self.most), x=WIDTH / 2, y=self.bottom + 27, class_="t m")
        return [tag("path", d=grid, class_="grid"), *texts, title]

    def label(self, row: int, text: str, value: str) -> Html:
        """The name of a bar above it, and its value at the right."""
        y = row * ROW + 12
        room = max(8, 60 - len(value))
        name = text if len(text) <= room else f"{text[: room - 1]}…"
        return join(
            [
                tag("text", name, x=EDGE, y=y, class_="label"),
                tag("text", value, x=WIDTH - EDGE, y=y, class_="label e"),
            ]
        )

    def limit(self, value: float) -> Html:
        x = EDGE + self.width(value)
        return tag("path", d=f"M{x:.1f} 14V{self.bottom:.0f}", class_="limit")


def svg(label: str, height: float, pieces: Iterable[Html], kind: str = MEASURED, width: float = WIDTH) -> Html:
    """The picture, with the text for screen readers."""
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", *pieces, viewBox=box, role="img", aria_label=label, class_=None if kind == MEASURED else kind)


def figure(title: str, picture: Html, legend: Html = NOTHING, notes: Sequence[str] = ()) -> Html:
    """The picture below its title, then the legend and notes."""
    below = [tag("p", note, class_="note") for note in notes]
    return tag("figure", tag("figcaption", title), picture, legend, *below)


def key(names: Sequence[tuple[int, str]], moved: Mapping[int, str] = MappingProxyType({})) -> Html:
    """The legend: colours and what they mean. It is HTML, so that it wraps on a phone. Colours that ``moved`` stand
    out, with how much.
    """
    if not names:
        return NOTHING
    rows = (
        tag(
            "li",
            tag("i", class_=f"f{color % COLORS}"),
            f"{name} {moved[color]}" if color in moved else name,
            class_="moved" if color in moved else None,
        )
        for color, name in names
    )
    return tag("ul", *rows, class_="legend")


def _bar(x: float, y: float, width: float, color: int, kind: str, *inside: Html) -> Html:
    classes = f"bar f{color % COLORS}" + ("" if kind == MEASURED else f" {kind}")
    return tag("rect", *inside, x=x, y=y, width=max(width, 0.6), height=BAR, class_=classes)


def _kind(shown: Sequence[Stack | Bar]) -> str:
    """The kind of all bars, if it is the same."""
    kinds = {bar.kind for bar in shown}
    return kinds.pop() if len(kinds) == 1 else MEASURED
