"""The rules by which a metric's new reading is held to its old one; each returns a line of the verdict.

One rule per ``Metric.hold``. Every comparison asks whether a number is good, never whether it is bad, so
that NaN is red.
"""

import math
from collections.abc import Callable

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import UsageError
from perfsuite.gate.explain import explain, explain_time
from perfsuite.gate.gather import is_number
from perfsuite.gate.lines import Scope, agree, bound_of, say, text
from perfsuite.gate.timing import TAIL_ALONE, hold_time
from perfsuite.records import Line, Reading
from perfsuite.units import show_change


def hold(metric: Metric, scope: Scope) -> Line | None:
    """Hold one metric; it must be on both sides and finite, whatever its rule; None where that is all that is asked."""
    new, old = scope.new.readings.get(metric.name), scope.old.readings.get(metric.name)
    if metric.hold not in RULES:
        raise UsageError(f"The metric {metric.name!r} holds by {metric.hold!r}. Known: {', '.join(RULES)}.")
    if not (_is_finite(new) and _is_finite(old)):
        whose = "the baseline" if _is_finite(new) else "the measurement"
        return text(metric, "failed", old, new, note=f"{whose} holds a number that is not finite")
    if new is None or old is None:
        needless = metric.optional and old is None
        if needless and metric.hold == "shown":
            return None
        side = "the baseline lacks it" if new else "not measured"
        return text(metric, "not held" if needless else "missing", old, new, note=side)
    line = RULES[metric.hold](metric, new, old, scope)
    if line and metric.hold == "time" and line.status in ("regressed", "suspected") and line.note != TAIL_ALONE:
        notes = [note for note in (explain_time(scope.new, scope.old), line.note) if note]
        return msgspec.structs.replace(line, note="; ".join(notes))
    return line


def _is_finite(reading: Reading | None) -> bool:
    """A sum is finite only if all of it is, which is asked of a hundred numbers at once."""
    if reading is None:
        return True
    try:
        if math.isfinite(sum(reading.samples, reading.value)):  # type: ignore[arg-type]
            return True
    except (OverflowError, TypeError):  # a whole number beyond every float, or a step that overflowed
        pass
    return all(is_number(number) for number in (reading.value, *reading.samples) if number is not None)


def _shown(metric: Metric, new: Reading, old: Reading, scope: Scope) -> None:
    """It is there and finite: that is all that is asked of it."""


def _exact(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Equality of the value and of its parts. Parts that shift under an equal value are red too: what grew is hidden
    by what shrank, and the next change may uncover it.
    """
    status, note = "regressed", ""
    if new.value == old.value and new.parts == old.parts:
        status = "ok"
    elif (new.value < old.value and metric.worse == "higher") or (new.value > old.value and metric.worse == "lower"):
        status = "improved"
    if status != "ok":
        note = explain(metric, new, old)
    return text(metric, status, old, new, show_change(old.value, new.value), "0", note)


def _close(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Every step that both have: within the bound of the precision, and overflowed in both or in none."""
    bound = bound_of(metric, scope.strategy)
    pairs = list(zip(old.samples, new.samples, strict=False))
    differing = [step for step, (before, after) in enumerate(pairs) if not agree(before, after, bound)]
    compared = [step for step, (before, after) in enumerate(pairs) if before is not None and after is not None]
    allowed = f"±{bound * 100:g} %"
    if differing:
        before, after = pairs[differing[0]]
        note = f"differs in step {differing[0]} first, in {len(differing)} of {len(pairs)} steps"
        change = "" if before is None or after is None else show_change(before, after)
        return say(metric, "regressed", _step(metric, before), _step(metric, after), change, allowed, note)
    if not compared:
        return text(metric, "missing", old, new, note="no step in common")
    before, after = pairs[compared[-1]]
    assert before is not None
    assert after is not None
    return say(metric, "ok", metric.show(before), metric.show(after), show_change(before, after), allowed)


def _undefined(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """A reading of both sides whose Metric is gone: nobody can say what it should be."""
    return text(metric, "missing", old, new, note="no Metric defines it")


RULES: dict[str, Callable[[Metric, Reading, Reading, Scope], Line | None]] = {
    "exact": _exact,
    "close": _close,
    "time": hold_time,
    "shown": _shown,
    "control": _shown,
    "undefined": _undefined,
}


def _step(metric: Metric, sample: float | None) -> str:
    return "overflow" if sample is None else metric.show(sample)
