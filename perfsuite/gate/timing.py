"""How a time is held to its baseline: launch by launch, net of what the machine itself got slower by."""

import math
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope, say, text
from perfsuite.gate.machines import why_other_machine
from perfsuite.gate.noise import CONFIRMATIONS, Level, level_of, relative, tail_bound, tail_of
from perfsuite.records import Line, Reading
from perfsuite.units import show_change, show_ratio


@dataclass(frozen=True)
class Excess:
    """By how much the quietest of the new launches lies above the bound, in logarithms; ``raw`` as the clock told it,
    ``net`` of what the control got slower by. Above 0 is too slow.
    """

    raw: float
    net: float


def hold_time(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Red if the first launch and CONFIRMATIONS further ones all lie above the bound, in their median step (a slower
    library) or in their slowest (one slow step in ten): noise.py says what the bound is. Until as many were launched a
    time above it is "suspected", which asks for more launches.
    """
    if scope.new.capacity_bytes is not None:
        return text(metric, "not held", old, new, note="memory is capped")
    if elsewhere := why_other_machine(scope.old.machine, scope.new.machine):
        return text(metric, "not held", old, new, note=elsewhere)
    sign = -1 if metric.worse == "lower" else 1  # from here on larger is worse
    launches = {"the baseline has": scope.old.by_launch(metric.name), "there are": scope.new.by_launch(metric.name)}
    for whose, samples in launches.items():
        if not samples or not all(samples):
            return text(metric, "missing", old, new, note=f"{whose} no timed steps")
        if not min(map(min, samples)) > 0:
            return text(metric, "failed", old, new, note="a time is not positive")
    before, after = ([_signed(launch, sign) for launch in samples] for samples in launches.values())
    if len(before) < 2:
        return text(metric, "not held", old, new, note="the baseline is of one launch, which says nothing of the noise")
    level, tolerance, slower = Level.of(before), scope.time_tolerance, scope.slower_control
    levels, margin = [level_of(launch) for launch in after], level.noise + math.log1p(tolerance)
    median = _excess(levels, slower, level.mean + margin)
    tail = _excess([tail_of(launch) for launch in after], slower, tail_bound(before, level, tolerance))
    faster = level.mean - margin - max(levels)
    allowed = ("-" if sign < 0 else "+") + show_ratio(relative(margin))
    change = show_change(old.value, new.value)
    detects = level.smallest_effect(tolerance)

    def line(status: str, note: str = "") -> Line:
        return say(
            metric, status, metric.show(old.value), metric.show(new.value), change, allowed, note, show_ratio(detects)
        )

    if level.too_wide(tolerance):
        return line("unstable", _ADVICE.format(spread=show_ratio(relative(level.spread))))
    confirmed = len(after) > CONFIRMATIONS
    if not (median.net <= 0 and tail.net <= 0):
        return line("regressed" if confirmed else "suspected", "" if not median.net <= 0 else TAIL_ALONE)
    if median.raw > 0 or tail.raw > 0:
        excuse = f"the machine: its control workload is {show_ratio(relative(slower))} slower too"
        return line("excused" if confirmed else "suspected", excuse)
    if faster > 0:
        return line("regressed" if metric.worse == "different" else "improved")
    return line("ok")


TAIL_ALONE = "the slowest steps alone"
_ADVICE = "the baseline's launches spread by {spread}: record it on a quieter machine, or raise --perf-time-tolerance"


def _signed(launch: list[float], sign: int) -> list[float]:
    """The launch such that larger is worse: rates by their reciprocals, which have the same noise."""
    return launch if sign > 0 else [1 / sample for sample in launch]


def _excess(values: list[float], slower: float, bound: float) -> Excess:
    raw = min(values) - bound
    return Excess(raw, raw - slower)
