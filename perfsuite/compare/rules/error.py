"""An error relative to a reference, of which the precision explains a part: the orders of sums differ between
releases and machines, so it changes a little. A wrong number multiplies it.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, low_precision, say
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_change

GROWTH = 2.0
# A smaller error is rounding, by precision: fp32, then bf16 and fp16.
FLOORS = (1e-3, 2e-2)
# A larger one is a wrong computation: to record it as a first baseline needs a reason.
CEILINGS = (1e-1, 3e-1)


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """At most twice the baseline's, or the floor of the precision; a baseline that exceeds this in turn is stale."""
    limit, least = (max(GROWTH * side.value, FLOORS[scope.low_precision]) for side in (old, new))
    good = new.value <= limit
    status: Status = "regressed" if not good else "ok" if old.value <= least else "improved"
    # A share of what is only rounding says nothing: +247043457 % of 1e-9.
    change = show_change(old.value, new.value) if old.value > least else ""
    allowed = f"up to {metric.show(limit)}"
    return say(
        metric, status, metric.show(old.value), metric.show(new.value), change, allowed, "" if good else _most(new)
    )


def wrong(metric: Metric, reading: Reading, strategy: str) -> str:
    """Why no precision explains the error."""
    ceiling = CEILINGS[low_precision(strategy)]
    if reading.value <= ceiling:
        return ""
    return f"{metric.title} is {metric.show(reading.value)}, and rounding explains {ceiling:g}; {_most(reading)}"


def _most(reading: Reading) -> str:
    told = [f"{name} ({size / 1e6:.2g})" for name, size in reading.suspects.items()]
    return f"most in {', '.join(told)}"


RULE = Rule(hold=hold, wrong=wrong)
