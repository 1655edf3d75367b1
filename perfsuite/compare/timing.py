"""How a time is compared with a baseline: it can raise an alarm, which calls for a trial and is never red by itself.

The hours of a shared machine differ by more than the slow-downs that matter, and nothing outside can separate the two:
what slows a library may also slow any reference measured next to it. So a stored time answers one of two questions.

Something changed    Can a slow-down that matters be ruled out? The time is ok only if it can, with RULED_OUT, given the
                     spread of the baseline's runs. Otherwise it is an alarm, and the trial decides: both
                     environments, in turn, in this run.
Nothing changed      Is the time usual for such runs, or slower by less than matters? If not, only the state of the
                     machine can have changed: "machine", which is neither good nor bad, since there is no second
                     environment to try.
                     If perfsuite's own code differs, it may be the cause too: "undecided".
"""

import math
import statistics
from collections.abc import Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.machines import say_state, why_other_machine
from perfsuite.compare.noise import Pool, relative
from perfsuite.compare.scope import Scope, say, text
from perfsuite.compare.terms import Terms
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_change, show_ratio

NO_TIMES = "no times from this machine: "
RULED_OUT = 0.95  # how sure a stored time must be to be ok without a trial


def hold_time(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """The line of a time, or of a rate, which is worse if it is lower."""
    if scope.new.capacity_bytes is not None:
        return text(metric, "not held", old, new, note="memory is capped")
    problem = _unsound([*new.samples, new.value] if new.samples else [])
    if problem:
        return text(metric, "failed" if new.samples else "missing", old, new, note=f"the measurement {problem}")
    values = [run.values[metric.name] for run in scope.runs if metric.name in run.values]
    if not values:
        status: Status = "alarm" if scope.changed else "not held"
        why = why_other_machine(scope.old.machine, scope.new.machine) or "the baseline has none"
        return text(metric, status, old, new, note=f"{NO_TIMES}{why}")
    if not min(values) > 0:
        return text(metric, "failed", old, new, note="the baseline has a time that is not positive")
    sign = metric.sign
    pool = pool_of(values, sign, scope.terms)
    slower = sign * math.log(new.value) - pool.mean
    usual, unlucky = statistics.median(values), pool.reach(RULED_OUT)
    sure = pool.reach(1 - scope.terms.alarm_rate)
    tolerance = scope.terms.tolerance_of(metric)

    def line(status: Status, allowed: float, note: str = "", detects: float | None = None) -> Line:
        shown, change = metric.show(usual), show_change(usual, new.value)
        limit = ("-" if sign < 0 else "+") + show_ratio(allowed)
        seen = "" if detects is None else show_ratio(detects)
        return say(metric, status, shown, metric.show(new.value), change, limit, note, seen)

    if by := scope.drifted.get(metric.name):
        note = f"{show_ratio(relative(by))} slower over the last runs than over the first, since {scope.since[:10]}"
        return line("alarm" if scope.changed else "machine", tolerance, note)
    if scope.changed:
        faster = slower < -math.log1p(tolerance)  # which suggests nothing slower, whatever the spread
        if not (slower + unlucky <= math.log1p(tolerance) or faster):
            note = f"{_of(values)} cannot rule out {show_ratio(tolerance)}"
            return line("alarm", tolerance, note)
        return line("improved" if slower < -sure else "ok", tolerance, detects=tolerance)
    allowed = limit_of(metric, pool, scope.terms)
    if not slower <= allowed:
        if scope.own_code:
            return line("undecided", relative(allowed), f"slower than {_of(values)}, and {scope.own_code}")
        return line("machine", relative(allowed), f"slower than {_of(values)}; {say_state(scope.old, scope.new)}")
    return line("ok", relative(allowed), detects=smallest_effect(metric, pool, scope.terms))


def pool_of(values: Sequence[float], sign: int, terms: Terms) -> Pool:
    """The prediction for one more run from the times of runs, or from rates (``sign`` -1)."""
    return Pool.of([sign * math.log(value) for value in values], terms.spread)


def limit_of(metric: Metric, pool: Pool, terms: Terms) -> float:
    """The slow-down, as a logarithm, up to which a time is ok if nothing has changed."""
    return max(pool.reach(1 - terms.alarm_rate), math.log1p(terms.tolerance_of(metric)))


def smallest_effect(metric: Metric, pool: Pool, terms: Terms) -> float:
    """The relative slow-down that exceeds that limit in 95 of 100 cases."""
    return relative(limit_of(metric, pool, terms) + pool.reach(RULED_OUT))


def _of(values: Sequence[float]) -> str:
    return "the one run of the baseline" if len(values) == 1 else f"the baseline's {len(values)} runs"


def _unsound(samples: Sequence[float | None]) -> str:
    if not samples:
        return "has no timed steps"
    return "" if all(sample is not None and sample > 0 for sample in samples) else "has a time that is not positive"
