"""Memory on a page: one side against another by category and operator, as bars, curves and tables."""

import itertools
from collections.abc import Mapping, Sequence

from perfsuite.compare.explain import moves
from perfsuite.records.curves import unpack
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import part_name
from perfsuite.show.html.axes import BYTES
from perfsuite.show.html.charts import MEASURED, Stack, stacked_bars
from perfsuite.show.html.curve_chart import Areas, Axes
from perfsuite.show.html.document import PageEntry, Table
from perfsuite.show.html.markup import Html
from perfsuite.show.text.memory_categories import CATEGORIES
from perfsuite.system.units import show_bytes, show_change

MOST = 6  # operators of a category
EVENTS = "allocations and releases, in order"
MOST_OF_EACH = (
    "Numbers next to a category compare the most that it has anywhere in the step. Tables compare what is alive at the "
    "peak, which may be elsewhere."
)


def anatomy(title: str, old: Reading | None, new: Reading, names: tuple[str, str], kind: str = MEASURED) -> Html:
    """The peak by category, of the baseline and now; one bar if they are equal."""
    stacks = [Stack(label=names[1], parts=new.parts, kind=kind)]
    if old and old.parts and old.parts != new.parts:
        stacks.insert(0, Stack(label=names[0], parts=old.parts, kind=kind))
    elif old and old.parts:
        stacks = [Stack(label=f"{names[1]} = {names[0]}", parts=new.parts, kind=kind)]
    return stacked_bars(title, stacks, BYTES, colors=list(CATEGORIES))


def over_a_step(
    title: str, old: Mapping[str, str], new: Mapping[str, str], names: tuple[str, str], kind: str
) -> Html | None:
    """Live memory over a step: the new side by category, and the old side's sum as a line. Curves of records/curves.py;
    None without a new one.
    """
    phases, sizes = unpack(new)
    if not phases:
        return None
    points = list(zip(*(sizes.get(name, [0] * len(phases)) for name in CATEGORIES), strict=True))
    _, before = unpack(old)
    other = (names[0], [sum(point) for point in zip(*before.values(), strict=True)]) if before else None
    lacks = f" (no curve of the {names[0]})" if names[0] and not other else ""
    title = f"{title}, {names[1]}{lacks}"
    most = {name: (max(before.get(name, [0])), max(sizes.get(name, [0]))) for name in CATEGORIES} if before else {}
    moved = {name: signed(now - then) for name, (then, now) in most.items() if now != then}
    drawn = Areas(
        points=points,
        names=list(CATEGORIES),
        axes=Axes(BYTES, EVENTS),
        phases=spans(phases),
        other=other,
        moved=moved,
        note=MOST_OF_EACH if moved else "",
        kind=kind,
    )
    return drawn.draw(title)


def difference(old: Reading | None, new: Reading, names: tuple[str, str]) -> Table:
    """Categories of both sides, and below each that differs the operators that moved most."""
    rows: list[Sequence[str | PageEntry]] = []
    below: set[int] = set()
    before = old.parts if old else {}
    for part in sorted(before | new.parts, key=lambda part: -abs(new.parts.get(part, 0) - before.get(part, 0))):
        sizes = before.get(part, 0), new.parts.get(part, 0)
        rows.append([part_name(part), *(show_bytes(size) for size in sizes), signed(sizes[1] - sizes[0])])
        if old is None or sizes[0] == sizes[1] or not (old.suspects and new.suspects):
            continue
        moved = {name: size for name, size in moves(part, new, old).items() if size}
        for name in sorted(moved, key=lambda name: -abs(moved[name]))[:MOST]:
            below.add(len(rows))
            rows.append([name.replace(" @ ", " in "), "", "", signed(moved[name])])
    before_all, after_all = (old.value if old else 0), new.value
    change = signed(after_all - before_all)
    if old and before_all != after_all:
        change = f"{change} ({show_change(before_all, after_all)})"
    rows.append(["all", show_bytes(before_all), show_bytes(after_all), change])
    head = ["category, and operators that moved", *names, "difference"]
    return Table(head=head, rows=rows, numbers=frozenset((1, 2, 3)), below=frozenset(below))


def signed(size: float) -> str:
    """``+1.94 GiB``; ``=`` for none."""
    return f"{'-' if size < 0 else '+'}{show_bytes(abs(size))}" if size else "="


def spans(phases: Sequence[str]) -> list[tuple[str, float, float]]:
    """(phase, begin, end) of each stretch of equal phases."""
    stretches, place = [], 0
    for phase, some in itertools.groupby(phases):
        width = len(list(some))
        stretches.append((phase, float(place), float(place + width)))
        place += width
    return stretches
