"""Compared exactly: a number that repeats itself, and each of its parts."""

import math

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, line_of
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope | None = None) -> Line:
    """Equality of the value and of its parts, up to what is material. Parts that shift under an equal value count too:
    one part's growth is hidden by another's shrinking, and the next change may uncover it.

    The old side is the accepted baseline, which an immaterial difference does not move. So many small differences add
    up, and are red as soon as their sum is material.
    """
    share = metric.materiality.share
    limit = Limit(bound=Bound.BELOW, value=share) if share else Limit(bound=Bound.EQUAL)
    if new.value == old.value and new.parts == old.parts:
        return line_of(metric, Status.OK, old, new, compared=True, limit=limit)
    better = (new.value < old.value and metric.worse == "higher") or (new.value > old.value and metric.worse == "lower")
    status = Status.IMPROVED if better else Status.REGRESSED
    if moved_share(new, old) < share:
        status = Status.IMMATERIAL
    return line_of(metric, status, old, new, compared=True, limit=limit, moves=explain(metric, new, old))


def moved_share(new: Reading, old: Reading) -> float:
    """How much moved, as a share of the old value: the value, all parts that grew or all that shrank, whichever is
    most. Infinite from nothing to something.
    """
    moves = [new.parts.get(part, 0) - old.parts.get(part, 0) for part in old.parts | new.parts]
    grown, shrunk = sum(move for move in moves if move > 0), -sum(move for move in moves if move < 0)
    return max(abs(new.value - old.value), grown, shrunk) / abs(old.value) if old.value else math.inf


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    """Whether it does not repeat itself, so that it cannot be compared."""
    return (first.value, first.parts) != (other.value, other.parts)


RULE = Rule(hold=compare, differs=differs)
