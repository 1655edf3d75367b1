"""Shown, without a limit: the number is there and finite, and that is all that is asked of it."""

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope
from perfsuite.gate.rules._rule import Rule
from perfsuite.wire.sample import Reading


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope) -> None:
    """It is there and finite: that is all that is asked of it."""


RULE = Rule(hold=hold, has_limit=False)
