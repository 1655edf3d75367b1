"""Compared roughly: a number that each launch has a little different, and that must not become much worse."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, line_of
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Worse by at most the metric's bound, or its slack. A better number is as good."""
    limit = limit_of(metric, old.value)
    worse = metric.sign * (new.value - old.value)
    fine = worse <= allowed(metric, old.value)
    if fine:
        return line_of(metric, Status.OK, old, new, compared=True, limit=limit)
    return line_of(metric, Status.REGRESSED, old, new, compared=True, limit=limit, moves=explain(metric, new, old))


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    """Whether it varies by more than that."""
    return abs(other.value - first.value) > allowed(metric, first.value)


def allowed(metric: Metric, old: float) -> float:
    """By how much it may be worse."""
    return max(metric.bound * abs(old), metric.slack)


def limit_of(metric: Metric, old: float) -> Limit:
    """The same, as it is said: a share of a small number says nothing, if the slack allows more."""
    if metric.bound * abs(old) >= metric.slack:
        return Limit(bound=Bound.BELOW, value=metric.bound)
    return Limit(bound=Bound.UP_TO, value=old + metric.sign * metric.slack)


RULE = Rule(hold=compare, differs=differs)
