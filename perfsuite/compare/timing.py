"""How a time is compared with a baseline: it can raise an alarm, which calls for a trial and is never red by itself.

The hours of a shared machine differ by more than the slow-downs that matter, and nothing outside can separate the two:
what slows a library may also slow any reference measured next to it. So a stored time answers one of two questions.

Something changed    Can a slow-down that matters be ruled out? The time is ok only if it can, with RULED_OUT, given the
                     spread of the baseline's runs. Otherwise it is an alarm, and the trial decides: both
                     environments, in turn, in this run.
Nothing changed      Is the time usual for such runs, or slower by less than matters? If not, only the state of the
                     machine can have changed: the time is open, since there is no second environment to try. If
                     perfsuite's own code differs, it may be the cause too.

Parts of the machine, such as its Python or its kernels, are no change here: nobody made them, and no trial can take
them back. Where a machine has no times of its own, only a change that somebody made is asked about.
"""

import math
import statistics
from collections.abc import Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.drifting import first_level
from perfsuite.compare.machines import loads, why_other_machine
from perfsuite.compare.noise import NoisePool, relative
from perfsuite.compare.scope import Scope, line_of
from perfsuite.compare.terms import Terms
from perfsuite.records.reasons import BadNumber, Capped, Drifted, FewerSamples, NoTimes, NotRuledOut, Reason, Slower
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Status

RULED_OUT = 0.95  # how sure a stored time must be to be ok without a trial
UNEVEN = 1.5  # times the baseline's mean step, as a share of its median step


def compare_time(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """The line of a time, or of a rate, which is worse if it is lower."""
    if scope.new.capacity_bytes is not None:
        return line_of(metric, Status.NOT_COMPARED, old, new, reason=Capped())
    if not new.samples:
        return line_of(metric, Status.MISSING, old, new, reason=FewerSamples(measured=0, recorded=len(old.samples)))
    if not all(sample is not None and sample > 0 for sample in (*new.samples, new.value)):
        return line_of(metric, Status.FAILED, old, new, reason=BadNumber(measured=True, finite=True))
    values = [run.values[metric.name] for run in scope.runs if metric.name in run.values]
    if not values:
        status = Status.OPEN if any(change.made for change in scope.changed) else Status.NOT_COMPARED
        why = why_other_machine(scope.old.machine, scope.new.machine) or NoTimes()
        return line_of(metric, status, old, new, reason=why)
    if not min(values) > 0:
        return line_of(metric, Status.FAILED, old, new, reason=BadNumber(measured=False, finite=True))
    sign = metric.sign
    pool = pool_of(values, sign, scope.terms)
    slower = sign * math.log(new.value) - pool.mean
    unlucky = pool.reach(RULED_OUT)
    sure = pool.reach(1 - scope.terms.alarm_rate)
    tolerance = scope.terms.tolerance_of(metric)

    def line(
        status: Status,
        allowed: float,
        why: Reason | None = None,
        detects: float | None = None,
        level: float = pool.mean,  # what decides is what is shown: the median of skewed runs may be on its other side
    ) -> Line:
        limit = Limit(bound=Bound.BEYOND, value=sign * allowed)
        usual = values[0] if len(set(values)) == 1 else math.exp(sign * level)  # a logarithm rounds
        return line_of(metric, status, old, new, old=usual, compared=True, limit=limit, reason=why, detects=detects)

    if by := scope.drifted.get(metric.name):
        first = first_level([sign * math.log(value) for value in values])
        return line(Status.OPEN, tolerance, Drifted(by=relative(by), since=scope.since), level=first)
    if any(change.is_suspect for change in scope.changed):
        if not slower + unlucky <= math.log1p(tolerance) or _has_slow_steps(new, old):
            return line(Status.OPEN, tolerance, NotRuledOut(runs=len(values), change=tolerance))
        return line(Status.IMPROVED if slower < -sure else Status.OK, tolerance, detects=tolerance)
    allowed = limit_of(metric, pool, scope.terms)
    if not slower <= allowed:
        if own := scope.own_code:
            return line(Status.OPEN, relative(allowed), Slower(runs=len(values), own_code=own))
        return line(Status.OPEN, relative(allowed), Slower(runs=len(values), loads=loads(scope.old, scope.new)))
    return line(Status.OK, relative(allowed), detects=smallest_effect(metric, pool, scope.terms))


def pool_of(values: Sequence[float], sign: int, terms: Terms) -> NoisePool:
    """The prediction for one more run from the times of runs, or from rates (``sign`` -1)."""
    return NoisePool.of([sign * math.log(value) for value in values], terms.spread)


def limit_of(metric: Metric, pool: NoisePool, terms: Terms) -> float:
    """The slow-down, as a logarithm, up to which a time is ok if nothing has changed."""
    return max(pool.reach(1 - terms.alarm_rate), math.log1p(terms.tolerance_of(metric)))


def smallest_effect(metric: Metric, pool: NoisePool, terms: Terms) -> float:
    """The relative slow-down that exceeds that limit in 95 of 100 cases."""
    return relative(limit_of(metric, pool, terms) + pool.reach(RULED_OUT))


def _has_slow_steps(new: Reading, old: Reading) -> bool:
    """Whether the mean is further above the median than the baseline's: less than half of the steps are slow."""
    now, then = (
        statistics.fmean(known) / statistics.median(known)
        if (known := [sample for sample in side.samples if sample])
        else 1.0
        for side in (new, old)
    )
    return now > UNEVEN * then
