"""How a time is held to its baseline: launch by launch, net of what the machine itself got slower by.

Where both sides have a pace (training/meters/pace.py), the noise is that of the steps as multiples of it, and too slow
is what is so by the clock and by the pace. By the clock alone a neighbour's busy hour would be; by the pace alone a
step that waits for a disk, when the core gets faster. A pace that got slower by more than lines.MOST_PACE says nothing.
"""

import math
from typing import NamedTuple

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope, say, text
from perfsuite.gate.machines import why_other_machine
from perfsuite.gate.noise import CONFIRMATIONS, Level, level_of, relative, tail_bound, too_wide
from perfsuite.records import Line, Measurement, Reading
from perfsuite.units import show_change, show_ratio

Launches = list[list[float]]


class Excess(NamedTuple):
    """By how much the quietest of the new launches lies above the baseline's bounds, in logarithms: by its median step
    and by its slowest. Above 0 is too slow. ``faster`` is how far the slowest launch lies below.
    """

    level: Level
    noise: float
    margin: float
    median: float
    tail: float
    faster: float

    @classmethod
    def of(cls, before: Launches, after: Launches, tolerance: float) -> "Excess":
        """``before`` are at least two launches."""
        level, levels = Level.of(before), [level_of(launch) for launch in after]
        noise = level.noise
        margin = noise + math.log1p(tolerance)
        tail = math.log(min([max(launch) for launch in after])) - tail_bound(before, noise, tolerance)
        return cls(level, noise, margin, min(levels) - level.mean - margin, tail, level.mean - margin - max(levels))


def hold_time(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Red if the first launch and CONFIRMATIONS further ones all lie above the bound, in their median step (a slower
    library) or in their slowest (one slow step in ten): noise.py says what the bound is. Until as many were launched a
    time above it is "suspected", which asks for more launches.
    """
    if scope.new.capacity_bytes is not None:
        return text(metric, "not held", old, new, note="memory is capped")
    if elsewhere := why_other_machine(scope.old.machine, scope.new.machine):
        return text(metric, "not held", old, new, note=elsewhere)
    before, after = timed_launches(scope.old, metric), timed_launches(scope.new, metric)
    for whose, samples in (("the baseline has", before), ("there are", after)):
        if not samples or not all(samples):
            return text(metric, "missing", old, new, note=f"{whose} no timed steps")
        if not min([min(launch) for launch in samples]) > 0:
            return text(metric, "failed", old, new, note="a time is not positive")
    if len(before) < 2:
        return text(metric, "not held", old, new, note="the baseline is of one launch, which says nothing of the noise")
    tolerance, slower = scope.time_tolerance, 0.0
    clock = judged = Excess.of(before, after, tolerance)
    if max(clock.median, clock.tail) + clock.noise > 0:
        slower = scope.slower_control
    median, tail, faster = clock.median - slower, clock.tail - slower, clock.faster
    old_pace, new_pace = scope.paces
    old_pace = at_pace(before, old_pace)
    if old_pace and (new_pace := at_pace(after, new_pace)) and scope.pace_is_plausible:
        judged = Excess.of(old_pace, new_pace, tolerance)
        # The noise is the pace's to tell; by the clock it is enough to be beyond the tolerance.
        median = min(median + clock.noise, judged.median)
        tail = min(tail + clock.noise, judged.tail)
        faster = min(faster, judged.faster)
    allowed = ("-" if metric.worse == "lower" else "+") + show_ratio(relative(judged.margin))
    change = show_change(old.value, new.value)
    detects = judged.level.smallest_effect(tolerance)

    def line(status: str, note: str = "") -> Line:
        return say(
            metric, status, metric.show(old.value), metric.show(new.value), change, allowed, note, show_ratio(detects)
        )

    if too_wide(detects, tolerance):
        return line("unstable", _ADVICE.format(spread=show_ratio(relative(judged.level.spread))))
    confirmed = len(after) > CONFIRMATIONS
    if not (median <= 0 and tail <= 0):
        note = TAIL_ALONE if median <= 0 else _by_pace(clock, judged)
        return line("regressed" if confirmed else "suspected", note)
    if clock.median > 0 or clock.tail > 0:
        return line("excused" if confirmed else "suspected", _excuse(slower))
    if faster > 0:
        return line("regressed" if metric.worse == "different" else "improved")
    return line("ok")


TAIL_ALONE = "the slowest steps alone"
_ADVICE = "the baseline's launches spread by {spread}: record it on a quieter machine, or raise --perf-time-tolerance"


def timed_launches(measurement: Measurement, metric: Metric) -> Launches:
    """The metric's samples, launch by launch, such that larger is worse: rates by their reciprocals, which have the
    same noise. Empty where it is not measured.
    """
    launches = measurement.by_launch(metric.name)
    if metric.worse != "lower":
        return launches
    return [[1 / sample if sample else 0.0 for sample in launch] for launch in launches]


def at_pace(launches: Launches, paces: Launches) -> Launches:
    """The launches' samples as multiples of the pace beside each; empty where there is none for each."""
    if not paces or list(map(len, paces)) != list(map(len, launches)) or not min(map(min, paces)) > 0:
        return []
    return [[time / pace for time, pace in zip(*pair, strict=True)] for pair in zip(launches, paces, strict=True)]


def noise_scale(measurement: Measurement, launches: Launches) -> Launches:
    """The launches as their noise is told: as multiples of the measurement's pace, where that is known."""
    return at_pace(launches, measurement.by_launch("pace_seconds")) or launches


def _by_pace(clock: Excess, judged: Excess) -> str:
    """What the quietest launch is slower by than the baseline, of the pace; nothing where it has none."""
    if judged is clock:
        return ""
    return f"{show_change(1, 1 + relative(judged.median + judged.margin))} at the machine's pace"


def _excuse(slower: float) -> str:
    if slower:
        return f"the machine: its control workload is {show_ratio(relative(slower))} slower too"
    return "the machine: at its pace the steps are no slower than their noise"
