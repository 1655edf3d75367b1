"""A reading on both sides whose Metric no longer exists: there is no rule for it."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, text
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Always missing: there is no rule for it."""
    return text(metric, "missing", old, new, note="no Metric defines it")


RULE = Rule(hold=hold, has_limit=False)
