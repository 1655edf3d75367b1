"""Compared exactly: a number that repeats itself, and each of its parts."""

import math

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, say, text
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_change, show_ratio


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope | None = None) -> Line:
    """Equality of the value and of its parts, up to what is material. Parts that shift under an equal value count too:
    one part's growth is hidden by another's shrinking, and the next change may uncover it.

    The old side is the accepted baseline, which an immaterial difference does not move. So many small differences add
    up, and are red as soon as their sum is material.
    """
    allowed = f"below {show_ratio(metric.materiality.share)}" if metric.materiality.share else "0"
    if new.value == old.value and new.parts == old.parts:
        value, change = metric.show(old.value), "+0.0 %" if old.value else "0 %"
        return say(metric, "ok", value, value, change, allowed)
    better = (new.value < old.value and metric.worse == "higher") or (new.value > old.value and metric.worse == "lower")
    status: Status = "improved" if better else "regressed"
    if moved_share(new, old) < metric.materiality.share:
        status = "immaterial"
    return text(metric, status, old, new, show_change(old.value, new.value), allowed, explain(metric, new, old))


def moved_share(new: Reading, old: Reading) -> float:
    """How much moved, as a share of the old value: the value, all parts that grew or all that shrank, whichever is
    most. Infinite from nothing to something.
    """
    moves = [new.parts.get(part, 0) - old.parts.get(part, 0) for part in old.parts | new.parts]
    grown, shrunk = sum(move for move in moves if move > 0), -sum(move for move in moves if move < 0)
    return max(abs(new.value - old.value), grown, shrunk) / abs(old.value) if old.value else math.inf


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> str:
    """Why a number that does not repeat itself cannot be compared."""
    if (first.value, first.parts) == (other.value, other.parts):
        return ""
    return (
        f"{metric.title} is {metric.show(first.value)} ({first.value:,}) in the first launch and "
        f"{metric.show(other.value)} ({other.value:,}) in launch {{number}}. It does not repeat itself, so "
        "it cannot be compared."
    )


RULE = Rule(hold=hold, differs=differs)
