"""Shown, without a limit: the number must only exist and be finite."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope
from perfsuite.records.sample import Reading


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> None:
    """The caller has checked that both numbers exist and are finite."""


RULE = Rule(hold=compare, has_limit=False)
