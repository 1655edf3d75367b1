"""Curves as inline SVG: lines with a band, stacked areas over a step, and small lines for a table."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfsuite.records.suspects import part_name
from perfsuite.show.html.axes import Quantity, tick_text, ticks
from perfsuite.show.html.charts import COLORS, MEASURED, WIDTH, figure, key, svg
from perfsuite.show.html.markup import Html, tag

LEFT, RIGHT, TOP, HEIGHT, BELOW = 46.0, 8.0, 16.0, 150.0, 34.0
CHARACTER = 5.4  # of a label, in units


@dataclass(frozen=True, kw_only=True)
class CurveLine:
    """Points (x, y) from left to right; ``old`` is drawn thin and dashed, as the side that is compared with. Lines of
    one name have one colour.
    """

    name: str
    points: Sequence[tuple[float, float]]
    old: bool = False


@dataclass(frozen=True, kw_only=True)
class Band:
    """Where values are usual: from ``low`` to ``high``, around ``middle``."""

    name: str
    low: float
    high: float
    middle: float | None = None


class Axes(NamedTuple):
    """What the axes of a chart say: the quantity of the upright one, and the title of the other."""

    quantity: Quantity
    x_title: str


class Plane:
    """Where the values of a chart lie: ``x`` and ``y`` are (lowest, highest)."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.low_x, self.high_x = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        margin = 0.06 * (y[1] - y[0]) or abs(y[1]) * 0.05 or 1.0
        self.low_y, self.high_y = (0.0 if y[0] == 0 else y[0] - margin), y[1] + margin
        self.bottom = TOP + HEIGHT
        self.height = self.bottom + BELOW

    def x(self, value: float) -> float:
        """The place of a value, in units from the left."""
        return LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The place of a value, in units from the top."""
        return self.bottom - (value - self.low_y) / (self.high_y - self.low_y) * HEIGHT

    def axes(self, axes: Axes, numbered: bool = True) -> list[Html]:
        """Lines at round numbers, and both titles with their units."""
        quantity, x_title = axes
        _, size = quantity.unit(self.high_y)
        grid, texts = "", []
        for at in ticks(self.low_y / size, self.high_y / size):
            y = self.y(at * size)
            grid += across(y)
            texts.append(tag("text", tick_text(at), x=LEFT - 4, y=y + 4, class_="t e"))
        for at in ticks(self.low_x, self.high_x, 8) if numbered else []:
            texts.append(tag("text", tick_text(at), x=self.x(at), y=self.bottom + 14, class_="t m"))
        texts.append(tag("text", quantity.axis(self.high_y), x=2.0, y=10.0, class_="t"))
        texts.append(tag("text", x_title, x=(LEFT + WIDTH - RIGHT) / 2, y=self.bottom + 29, class_="t m"))
        return [tag("path", d=grid, class_="grid"), *texts]

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)

    def stairs(self, heights: Sequence[float]) -> str:
        """Each height is held for one unit, from 0 on. Relative coordinates, since they are shorter."""
        x, y = round(self.x(0), 1), round(self.y(heights[0]), 1)
        path, at = f"M{x} {y}", 0
        for height, some in itertools.groupby(heights):
            at += len(list(some))
            right, down = round(self.x(at) - x, 1), round(self.y(height) - y, 1)
            path += (f"v{down:g}" if down else "") + f"h{right:g}"
            x, y = x + right, y + down
        return path

    def phases(self, phases: Sequence[tuple[str, float, float]]) -> list[Html]:
        """A line where each phase begins, and its name if there is room."""
        pieces = []
        for name, begin, end in phases:
            x = self.x(begin)
            pieces.append(tag("path", d=f"M{x:.1f} {TOP:.0f}V{self.bottom:.0f}", class_="rule"))
            if self.x(end) - x > CHARACTER * len(name):
                pieces.append(tag("text", name, x=x + 3, y=self.bottom + 14, class_="t"))
        return pieces


def across(y: float) -> str:
    """The path of a line over the whole chart."""
    return f"M{LEFT:.0f} {y:.1f}H{WIDTH - RIGHT:.0f}"


def lines(
    title: str, shown: Sequence[CurveLine], axes: Axes, *, band: Band | None = None, kind: str = MEASURED
) -> Html:
    """Lines over a common axis, which begins where the values do; the ``band`` is where they usually are."""
    shown = [line for line in shown if line.points]
    if not shown:
        return figure(title, Html(), notes=["nothing was measured"])
    xs = [x for line in shown for x, _ in line.points]
    ys = [y for line in shown for _, y in line.points] + ([band.low, band.high] if band else [])
    plane, quantity = Plane((min(xs), max(xs)), (min(ys), max(ys))), axes.quantity
    pieces = []
    if band:
        top, bottom = plane.y(band.high), plane.y(band.low)
        pieces.append(tag("rect", x=LEFT, y=top, width=WIDTH - LEFT - RIGHT, height=bottom - top, class_="band"))
        if band.middle is not None:
            pieces.append(tag("path", d=across(plane.y(band.middle)), class_="old"))
    pieces += plane.axes(axes)
    colors = {name: color for color, name in enumerate(dict.fromkeys(line.name for line in shown if not line.old))}
    labels = []
    for line in shown:
        classes = "old curve" if line.old else f"curve l{colors[line.name] % COLORS}"
        pieces.append(tag("path", d=plane.path(line.points), class_=classes))
        values = [y for _, y in line.points]
        labels.append(f"{line.name} from {quantity.show(min(values))} to {quantity.show(max(values))}")
    legend = [(color, name) for name, color in colors.items()]
    notes = [f"shaded: {band.name}, {quantity.show(band.low)} to {quantity.show(band.high)}"] if band else []
    notes += [f"dashed: {', '.join(dict.fromkeys(line.name for line in shown if line.old))}"] * any(
        line.old for line in shown
    )
    return figure(title, svg("; ".join([title, *labels, *notes]), plane.height, pieces, kind), key(legend), notes)


@dataclass(frozen=True, kw_only=True)
class Areas:
    """Stacked steps: ``points[i][j]`` is how much ``names[j]`` has from i to i + 1. ``phases`` are (name, begin, end).

    ``other`` is the total of a second side, over the same axis. ``moved`` says of names how much they did.
    ``limit`` is a line, or a sentence if it is far above.
    """

    points: Sequence[Sequence[float]]
    names: Sequence[str]
    axes: Axes
    phases: Sequence[tuple[str, float, float]] = ()
    other: tuple[str, Sequence[float]] | None = None
    limit: tuple[str, float] | None = None
    moved: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    kind: str = MEASURED

    def draw(self, title: str) -> Html:
        """The chart, with its key and its notes."""
        points, other, limit, quantity = self.points, self.other, self.limit, self.axes.quantity
        totals = [sum(point) for point in points]
        most = max([*totals, *(other[1] if other else [])], default=0)
        near = limit is not None and most * 4 >= limit[1]
        plane = Plane((0, len(points)), (0, max(most, limit[1]) if near and limit else most))
        pieces, used, drawn = plane.axes(self.axes, numbered=not self.phases), [], []
        sums = [0.0] * len(points)
        for number, name in enumerate(self.names):
            heights = [point[number] for point in points]
            if any(heights):
                sums = [below + height for below, height in zip(sums, heights, strict=True)]
                path = f"{plane.stairs(sums)}V{plane.bottom:.0f}H{LEFT:.0f}Z"  # to zero: the next lower one covers it
                drawn.append(tag("path", d=path, class_=f"f{number % COLORS}"))
                used.append((number, part_name(name)))
        pieces.append(tag("g", *drawn[::-1], class_="areas"))
        notes = [self.note] if self.note else []
        if other:
            stretched = [other[1][index * len(other[1]) // len(points)] for index in range(len(points))]
            pieces.append(tag("path", d=plane.stairs(stretched), class_="curve whisker"))
            notes.append(f"line: {other[0]}, at most {quantity.show(max(other[1]))}")
        pieces += plane.phases(self.phases)
        if limit and near:
            pieces.append(tag("path", d=across(plane.y(limit[1])), class_="limit"))
        if limit:
            share = "" if near else f", of which at most {100 * most / limit[1]:.2g} % is used"
            notes.append(f"{limit[0]}: {quantity.show(limit[1])}{share}")
        label = f"{title}: at most {quantity.show(max(totals, default=0))}"
        marked = {number: self.moved[name] for number, name in enumerate(self.names) if name in self.moved}
        return figure(title, svg("; ".join([label, *notes]), plane.height, pieces, self.kind), key(used, marked), notes)


def sparkline(label: str, values: Sequence[float | None]) -> Html:
    """A line without axes for a table's row; ``label`` says what it is. A gap is None; the last value has a point."""
    known = [value for value in values if value is not None]
    if not known:
        return Html()
    low, high = min(known), max(known)
    room = (high - low) or abs(high) or 1.0

    def place(index: int, value: float) -> tuple[float, float]:
        return 2 + index * 116 / max(1, len(values) - 1), 22 - (value - low) / room * 20

    pieces = []
    places = [None if value is None else place(index, value) for index, value in enumerate(values)]
    for given, some in itertools.groupby(places, key=lambda at: at is not None):
        run = [at for at in some if at is not None]
        if given:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (run if len(run) > 1 else run * 2))
            pieces.append(tag("path", d=path, class_="curve l0"))
    if (last := places[-1]) is not None:
        pieces.append(tag("circle", cx=last[0], cy=last[1], r=2.2, class_="f0"))
    return Html(svg(label, 24, pieces, width=120).replace("<svg ", '<svg class="spark" ', 1))
