"""An error relative to a reference, of which the precision explains a part: the orders of sums differ between
releases and machines, so it changes a little. A wrong number multiplies it.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, line_of, low_precision
from perfsuite.records.reasons import Reason, Wrong
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Move, Status

GROWTH = 2.0
# A smaller error is rounding, by precision: fp32, then bf16 and fp16.
FLOORS = (1e-3, 2e-2)
# A larger one is a wrong computation: to record it as a first baseline needs a reason.
CEILINGS = (1e-1, 3e-1)
MILLION = 1e6  # suspects are whole numbers: millionths


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """At most twice the baseline's, or the floor of the precision; a baseline that exceeds this in turn is stale."""
    limit, least = (max(GROWTH * side.value, FLOORS[scope.low_precision]) for side in (old, new))
    good = new.value <= limit
    status = Status.REGRESSED if not good else Status.OK if old.value <= least else Status.IMPROVED
    return line_of(
        metric,
        status,
        old,
        new,
        compared=old.value > least,  # a share of what is only rounding says nothing: +247043457 % of 1e-9
        limit=Limit(bound=Bound.UP_TO, value=limit),
        moves=[] if good else [Move(operator=name, by=share) for name, share in _most(new).items()],
    )


def wrong(metric: Metric, reading: Reading, strategy: str) -> Reason | None:
    """Why no precision explains the error."""
    ceiling = CEILINGS[low_precision(strategy)]
    if reading.value <= ceiling:
        return None
    return Wrong(title=metric.title, unit=metric.unit, value=reading.value, most=ceiling, parts=_most(reading))


def _most(reading: Reading) -> dict[str, int | float]:
    return {name: size / MILLION for name, size in reading.suspects.items()}


RULE = Rule(hold=compare, wrong=wrong)
