"""The rules by which a metric's new reading is held to its old one; each returns a line of the verdict.

One rule per ``Metric.hold``. Every comparison asks whether a number is good, never whether it is bad, so
that NaN is red.
"""

from collections.abc import Callable

import msgspec

from perfsuite.catalog.definitions import Hold, Metric
from perfsuite.errors import UsageError
from perfsuite.gate.explain import explain, explain_time
from perfsuite.gate.gather import is_number
from perfsuite.gate.lines import Scope, agree, bound_of, changes, say, text
from perfsuite.gate.timing import hold_time
from perfsuite.records.verdict import Line, Status
from perfsuite.units import show_change
from perfsuite.wire.sample import Reading


def hold(metric: Metric, scope: Scope) -> Line | None:
    """Hold one metric; it must be on both sides and finite, whatever its rule; None where that is all that is asked."""
    new, old = scope.new.readings.get(metric.name), scope.old.readings.get(metric.name)
    rule = RULES.get(metric.hold)
    if rule is None:
        raise UsageError(f"The metric {metric.name!r} holds by {metric.hold!r}. Known: {', '.join(RULES)}.")
    if new and old and (other := _another(metric, scope)):
        return text(metric, "not held", old, new, note=f"counts differ with the release: {other}")
    if new and old and scope.finite:
        return None if rule is _shown else rule(metric, new, old, scope)
    if new is None and old is None and metric.optional:
        return None
    if not (_is_finite(new) and _is_finite(old)):
        whose = "the baseline" if _is_finite(new) else "the measurement"
        return text(metric, "failed", old, new, note=f"{whose} holds a number that is not finite")
    if new is None or old is None:
        needless = metric.optional and old is None
        if rule is _shown and (needless or (metric.optional and metric.derive)):
            return None  # what its formula leaves out is no loss, such as an MFU above 100 %
        side = "the baseline lacks it" if new else "not measured"
        return text(metric, "not held" if needless else "missing", old, new, note=side)
    return rule(metric, new, old, scope)


def _another(metric: Metric, scope: Scope) -> str:
    """``python 3.11 -> 3.12``: what the metric depends on and has another minor release on the other side."""
    sides = scope.old.versions, scope.new.versions
    old, new = ({name: _minor(side.get(name, "")) for name in metric.depends_on} for side in sides)
    return ", ".join(changes(old, new))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_finite(reading: Reading | None) -> bool:
    if reading is None:
        return True
    return all(is_number(number) for number in (reading.value, *reading.samples) if number is not None)


def _shown(metric: Metric, new: Reading, old: Reading, scope: Scope) -> None:
    """It is there and finite: that is all that is asked of it."""


def _exact(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Equality of the value and of its parts. Parts that shift under an equal value are red too: what grew is hidden
    by what shrank, and the next change may uncover it.
    """
    if new.value == old.value and new.parts == old.parts:
        value, change = metric.show(old.value), "+0.0 %" if old.value else "0 %"
        return Line(
            metric=metric.name, title=metric.title, status="ok", old=value, new=value, change=change, allowed="0"
        )
    better = (new.value < old.value and metric.worse == "higher") or (new.value > old.value and metric.worse == "lower")
    status: Status = "improved" if better else "regressed"
    return text(metric, status, old, new, show_change(old.value, new.value), "0", explain(metric, new, old))


def _close(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Every step that both have: within the bound of the precision, and overflowed in both or in none."""
    bound = bound_of(metric, scope.low_precision)
    pairs = list(zip(old.samples, new.samples, strict=False))
    allowed = f"±{bound * 100:g} %"
    if old.samples != new.samples and not all(agree(before, after, bound) for before, after in pairs):
        differing = [step for step, (before, after) in enumerate(pairs) if not agree(before, after, bound)]
        before, after = pairs[differing[0]]
        note = f"differs in step {differing[0]} first, in {len(differing)} of {len(pairs)} steps"
        change = "" if before is None or after is None else show_change(before, after)
        return say(metric, "regressed", _step(metric, before), _step(metric, after), change, allowed, note)
    for before, after in reversed(pairs):
        if before is not None and after is not None:
            return say(metric, "ok", metric.show(before), metric.show(after), show_change(before, after), allowed)
    return text(metric, "missing", old, new, note="no step in common")


def _time(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """timing.py's rule; what is slower is explained by the phases of a step."""
    line = hold_time(metric, new, old, scope)
    explained = explain_time(scope.new, scope.old) if line.status in ("alarm", "machine") and line.change else ""
    return msgspec.structs.replace(line, note="; ".join(filter(None, (line.note, explained))))


def _undefined(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """A reading of both sides whose Metric is gone: nobody can say what it should be."""
    return text(metric, "missing", old, new, note="no Metric defines it")


RULES: dict[Hold, Callable[[Metric, Reading, Reading, Scope], Line | None]] = {
    "exact": _exact,
    "close": _close,
    "time": _time,
    "shown": _shown,
    "undefined": _undefined,
}


def _step(metric: Metric, sample: float | None) -> str:
    return "overflow" if sample is None else metric.show(sample)
