"""A time, or a rate: compare/timing.py decides, and the phases of a step explain a slow-down."""

import statistics

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.explain import explain_time
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope
from perfsuite.compare.timing import compare_time
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """The line of compare/timing.py, with the phases that explain a slow-down."""
    line = compare_time(metric, new, old, scope)
    if line.status == Status.OPEN and line.compared:
        return msgspec.structs.replace(line, phases=explain_time(scope.new, scope.old))
    return line


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    """Whether launches cannot be pooled; times themselves differ."""
    return len(first.samples) != len(other.samples)


RULE = Rule(hold=compare, summary=statistics.median, differs=differs)
