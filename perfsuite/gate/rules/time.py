"""A time, or a rate: gate/timing.py decides, and the phases of a step explain a slow-down."""

import statistics

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.explain import explain_time
from perfsuite.gate.lines import Scope
from perfsuite.gate.rules._rule import Rule
from perfsuite.gate.timing import hold_time
from perfsuite.records.verdict import Line
from perfsuite.wire.sample import Reading


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """The line of gate/timing.py, with the phases that explain a slow-down."""
    line = hold_time(metric, new, old, scope)
    explained = explain_time(scope.new, scope.old) if line.status in ("alarm", "machine") and line.change else ""
    return msgspec.structs.replace(line, note="; ".join(filter(None, (line.note, explained))))


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> str:
    """Why launches cannot be pooled; times themselves differ."""
    same = len(first.samples) == len(other.samples)
    return "" if same else f"{metric.title} has other samples in launch {{number}} than in the first."


RULE = Rule(hold=hold, summary=statistics.median, differs=differs)
