"""Compared over the steps that both launches have made: the worst of these samples. How many later steps of a script a
launch sees depends on the machine's speed, so a step that one of them never made says nothing.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.rules.about import allowed, limit_of
from perfsuite.compare.scope import Scope, line_of
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Worse by at most the metric's bound, or its slack. A better number is as good."""
    here, there = in_common(new, old)
    status = Status.OK if metric.sign * (here - there) <= allowed(metric, there) else Status.REGRESSED
    return line_of(metric, status, old, new, compared=True, limit=limit_of(metric, there))


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    """Whether it varies by more than that."""
    here, there = in_common(first, other)
    return abs(there - here) > allowed(metric, here)


def in_common(first: Reading, other: Reading) -> tuple[float, float]:
    """The largest sample of each, of the steps that both have; the values of readings without samples."""
    number = min(len(first.samples), len(other.samples))
    if not number:
        return first.value, other.value
    return largest(first.samples[:number]), largest(other.samples[:number])


def largest(samples: list[float | None]) -> float:
    """Of those that are known."""
    return max((sample for sample in samples if sample is not None), default=0.0)


RULE = Rule(hold=compare, summary=max, differs=differs, is_open_ended=True)
