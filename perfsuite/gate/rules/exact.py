"""Compared exactly: a number that repeats itself, and each of its parts."""

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.explain import explain
from perfsuite.gate.lines import Scope, say, text
from perfsuite.gate.rules._rule import Rule
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_change
from perfsuite.wire.sample import Reading


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope | None = None) -> Line:
    """Equality of the value and of its parts. Parts that shift under an equal value are red too: one part's growth is
    hidden by another's shrinking, and the next change may uncover it.
    """
    if new.value == old.value and new.parts == old.parts:
        value, change = metric.show(old.value), "+0.0 %" if old.value else "0 %"
        return say(metric, "ok", value, value, change, "0")
    better = (new.value < old.value and metric.worse == "higher") or (new.value > old.value and metric.worse == "lower")
    status: Status = "improved" if better else "regressed"
    return text(metric, status, old, new, show_change(old.value, new.value), "0", explain(metric, new, old))


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
