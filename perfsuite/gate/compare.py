"""Two sides of an A/B, launched in turn on one machine: in what B is worse or better than A, and why.

Exact metrics and losses use the judge's own rules, with A as the baseline; times use gate/paired.py.

Statuses, worst first
        failed      a side ended without a measurement, the metrics of both sides differ, or nothing could be compared
        regressed   B needs more, is certainly slower, or computes something else
        undecided   a time: a difference as large as the tolerance can be neither shown nor ruled out
        improved    B needs less or is certainly faster
        immaterial  an exact metric differs by less than matters
        same        a time: any difference is smaller than the tolerance
A line can also be "not held", or "differs": two strategies may count and compute differently
without one being worse.
"""

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.judge import OUTCOMES
from perfsuite.gate.launches import merge
from perfsuite.gate.lines import Scope, changes, say
from perfsuite.gate.noise import level_of
from perfsuite.gate.paired import LOOKS, Interval, harmless, interval
from perfsuite.gate.rules import hold
from perfsuite.gate.terms import Terms
from perfsuite.records.measurement import Measurement
from perfsuite.records.suspects import part_name
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.units import show_change, show_ratio
from perfsuite.wire.record import Record
from perfsuite.wire.sample import Reading

ORDER: tuple[Status, ...] = ("failed", "regressed", "undecided", "improved", "immaterial", "same")
_STATUS: dict[Status, Status] = {"ok": "same", "missing": "failed"}  # the judge's statuses that have another name here


class Paired(Record, frozen=True, kw_only=True):
    """A time of B relative to A's, with the interval that decided. ``error`` is the chance that it lies outside on one
    side. ``differences`` are those of pairs, in logarithms.
    """

    metric: str
    ratio: float
    low: float
    high: float
    error: float
    differences: list[float]


class Comparison(Record, frozen=True, kw_only=True):
    """One cell of an A/B; ``a`` and ``b`` keep every raw sample."""

    a: Measurement
    b: Measurement
    verdict: Verdict
    times: list[Paired]
    explanation: list[str]


def compare(
    a: Sequence[Measurement],
    b: Sequence[Measurement],
    metrics: Iterable[Metric],
    *,
    strategies: tuple[str, str],
    terms: Terms,
    installed: tuple[dict[str, str], dict[str, str]] = ({}, {}),
) -> Comparison:
    """Compare all launches of both sides, in their order. One launch of each compares no times.

    ``terms`` say which difference in a time must be detected, and how often an equal time may be called worse.
    ``installed`` are versions of packages of A and of B that the ranks may not report.
    """
    metrics = list(metrics)
    old, new = merge(a, metrics), merge(b, metrics)
    cell = new.cell if old.cell == new.cell else f"{old.cell} -> {new.cell}"
    told = (old.versions, new.versions) if old.versions and new.versions else ({}, {})
    ours, theirs = (one | more for one, more in zip(told, installed, strict=True))
    changed = changes(ours, theirs) + (changes(old.flags, new.flags) if old.flags and new.flags else [])
    if old.outcome != "fits" or new.outcome != "fits":
        status, headline = _outcomes(old, new)
        verdict = Verdict(cell=cell, status=status, headline=f"{cell}: {headline}", changed=changed)
        return Comparison(a=old, b=new, verdict=verdict, times=[], explanation=[])
    # The losses use the wider precision bound of the two: the rules look for it among all the techniques.
    scope = Scope(new, old, "+".join(strategies))
    lines, times, explanation = [], [], []
    for metric in metrics:
        before, after = old.readings.get(metric.name), new.readings.get(metric.name)
        if before is None and after is None and metric.optional:
            continue
        if metric.hold == "time" and before and after:
            line, paired = _time(metric, old, new, terms)
            times += [paired] if paired else []
        else:
            found = hold(metric, scope)
            if found is None:
                continue
            line = _ours(found, metric, rivals=strategies[0] != strategies[1])
        lines.append(line)
        if line.status in ("regressed", "improved", "immaterial") and before and after and after.parts:
            explanation += [f"{metric.title}:", *_explain(metric, before, after)]
    status = min((line.status for line in lines if line.status in ORDER), key=ORDER.index, default="failed")
    verdict = Verdict(cell=cell, status=status, headline=f"{cell}: {_headline(lines)}", lines=lines, changed=changed)
    return Comparison(a=old, b=new, verdict=verdict, times=times, explanation=explanation)


def differences(a: Sequence[Measurement], b: Sequence[Measurement], metric: str) -> list[float]:
    """Of each launch of B from its paired launch of A, in logarithms: the median over their steps, which may have
    alternated; the difference of the medians if one side lacks some steps.
    """
    launches = [[launch for one in side for launch in one.by_launch(metric)] for side in (a, b)]
    return [_difference(before, after) for before, after in zip(*launches, strict=True)]


def _difference(before: Sequence[float], after: Sequence[float]) -> float:
    if len(before) != len(after):
        return level_of(after) - level_of(before)
    return statistics.median(math.log(new / old) for old, new in zip(before, after, strict=True))


def _outcomes(old: Measurement, new: Measurement) -> tuple[Status, str]:
    """If a side did not fit, only the outcomes are compared."""
    reasons = [one.failure.message if one.failure else "" for one in (old, new)]
    for side, one, reason in zip("AB", (old, new), reasons, strict=True):
        if one.outcome not in OUTCOMES:
            return "failed", f"{side} failed: {reason}"
    if old.outcome == new.outcome == "unsupported":
        return "failed", f"failed: nothing was compared, since neither side can run it: {reasons[1] or reasons[0]}"
    by = OUTCOMES.index(new.outcome) - OUTCOMES.index(old.outcome)
    status: Status = "same" if by == 0 else "improved" if by > 0 else "regressed"
    return status, f"{status}: {old.outcome} -> {new.outcome}: {reasons[1] or reasons[0]}"


def _ours(line: Line, metric: Metric, rivals: bool) -> Line:
    status = _STATUS.get(line.status, line.status)
    if rivals and (line.status == "missing" or (line.status == "regressed" and metric.worse == "different")):
        status = "differs"
    return msgspec.structs.replace(line, status=status, detects="")


def _time(metric: Metric, old: Measurement, new: Measurement, terms: Terms) -> tuple[Line, Paired | None]:
    """The ratio's line. For a rate, more is better, so its reciprocal is compared and the rate is shown."""
    sign, tolerance = metric.sign, terms.tolerance_of(metric)
    found = differences([old], [new], metric.name)
    before, after = (metric.show(one.readings[metric.name].value) for one in (old, new))
    here = interval([sign * one for one in found], terms.red_rate)
    if here is None:
        note = f"{len(found)} pairs, but an interval needs {LOOKS[0]}"
        return say(metric, "not held", before, after, "", "", note), None
    status, decided = here.decide(tolerance)
    low, high = sorted(math.exp(sign * end) for end in (decided.low, decided.high))
    ratio = math.exp(sign * here.estimate)
    note = f"{show_change(1, low)} to {show_change(1, high)}, {len(found)} pairs"
    if status == "undecided":
        note += f"; {_undecided(here, tolerance)}"
    elif status != "same" and min(abs(decided.low), abs(decided.high)) < math.log1p(tolerance):  # it is "allowed" too
        note += f"; all beyond the {show_ratio(harmless(tolerance))} that need not be reported"
    line = say(metric, status, before, after, show_change(1, ratio), f"±{show_ratio(tolerance)}", note)
    paired = Paired(metric=metric.name, ratio=ratio, low=low, high=high, error=decided.error, differences=found)
    return line, paired


def _undecided(found: Interval, tolerance: float) -> str:
    """What the pairs do show."""
    if found.low <= 0 <= found.high:
        return f"no difference shown, but {show_ratio(tolerance)} is not ruled out"
    return f"{'worse' if found.low > 0 else 'better'}, but perhaps too little to matter"


def _headline(lines: Sequence[Line]) -> str:
    """``regressed: step time; improved: peak memory``."""
    told = [*ORDER[:-1], "differs"]
    parts = [
        f"{status}: {', '.join(titles)}"
        for status in told
        if (titles := [line.title for line in lines if line.status == status])
    ]
    return "; ".join(parts) or "same"


def _explain(metric: Metric, old: Reading, new: Reading) -> list[str]:
    """The parts that differ, and below each part the operators that differ, the largest difference first.

    A reading names only its largest operators. An operator that a side does not name is at most as large as the
    smallest named one, and as the rest of the part. So a difference is reported only as far as it is certain.
    """
    rows = []
    parts = {part: new.parts.get(part, 0) - old.parts.get(part, 0) for part in sorted(old.parts | new.parts)}
    for part, by in sorted(parts.items(), key=lambda item: -abs(item[1])):
        most_old, most_new = _most_unnamed(old, part), _most_unnamed(new, part)
        moved: dict[str, int] = {}
        for name in (name for name in old.suspects | new.suspects if name.startswith(f"{part}: ")):
            before, after = old.suspects.get(name), new.suspects.get(name)
            if before is None:
                moved[name] = max(0, (after or 0) - most_old)
            else:
                moved[name] = min(0, most_new - before) if after is None else after - before
        moved = {name: size for name, size in moved.items() if size}
        if moved or by:
            title = f"  {part_name(part)}"
            rows.append(_row(metric, title, old.parts.get(part, 0), new.parts.get(part, 0), by))
        for name in sorted(moved, key=lambda name: -abs(moved[name])):
            sizes = old.suspects.get(name), new.suspects.get(name)
            rows.append(_row(metric, f"    {name.removeprefix(f'{part}: ')}", *sizes, moved[name]))
    return rows


def _most_unnamed(reading: Reading, part: str) -> int:
    """The largest size in the part of an operator that the reading does not name."""
    named = [size for name, size in reading.suspects.items() if name.startswith(f"{part}: ")]
    return max(0, min(reading.parts.get(part, 0) - sum(named), *reading.suspects.values(), 2**63))


def _row(metric: Metric, title: str, before: int | None, after: int | None, by: int) -> str:
    sizes = ["–" if size is None else metric.show(size) for size in (before, after)]
    change = f"{'-' if by < 0 else '+'}{metric.show(abs(by))}" if by else "0"
    if by not in (0, (after or 0) - (before or 0)):
        change += " at least"
    return f"{title:<40} {sizes[0]:>12} -> {sizes[1]:>12}   {change}"
