"""A reading on both sides whose Metric no longer exists: there is no rule for it."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, line_of
from perfsuite.records.reasons import NoMetric
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Always missing: there is no rule for it."""
    return line_of(metric, Status.MISSING, old, new, reason=NoMetric())


RULE = Rule(hold=compare, has_limit=False)
