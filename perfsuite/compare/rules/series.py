"""Compared name by name: the numbers that both sides have, within the metric's bound. A number that only one side has
seen says nothing: how much of a script a launch sees depends on the machine's speed.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, agree, line_of
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Move, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Every common number of every common name. The line has the name that differs most, and its two numbers."""
    limit = Limit(bound=Bound.CLOSE, value=metric.bound)
    moved = {name: pair for name in old.series if (pair := first_difference(metric, new, old, name))}
    if not moved:
        return line_of(metric, Status.OK, old, new, compared=True, limit=limit)
    name = max(moved, key=lambda name: _far(*moved[name]))
    before, after = moved[name]
    moves = [Move(part=each, by=(pair[1] or 0.0) - (pair[0] or 0.0)) for each, pair in moved.items()]
    return line_of(
        metric,
        Status.REGRESSED,
        old,
        new,
        old=before,
        new=after,
        compared=None not in (before, after),
        limit=limit,
        moves=sorted(moves, key=lambda move: move.part != name),
    )


def first_difference(metric: Metric, new: Reading, old: Reading, name: str) -> tuple[float | None, float | None] | None:
    """The old and the new number of that name that differ first; None if all common ones agree."""
    pairs = zip(old.series.get(name, []), new.series.get(name, []), strict=False)
    return next((pair for pair in pairs if not agree(*pair, metric.bound)), None)


def _far(before: float | None, after: float | None) -> float:
    """The relative difference; infinite if one of them is not finite."""
    if before is None or after is None:
        return float("inf")
    return abs(after - before) / max(abs(before), abs(after))


def repeated(metric: Metric, first: Reading, other: Reading) -> dict[str, list[float | None]]:
    """The names of the first launch whose numbers the other one does not contradict."""
    return {name: numbers for name, numbers in first.series.items() if not first_difference(metric, other, first, name)}


RULE = Rule(hold=compare)
