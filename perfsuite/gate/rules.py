"""The rules by which a metric's new reading is held to its old one; each returns a line of the verdict.

One rule per ``Metric.hold``. Every comparison asks whether a number is good, never whether it is bad, so
that NaN is red.
"""

from collections.abc import Callable

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import UsageError
from perfsuite.gate.explain import explain, explain_time
from perfsuite.gate.gather import is_number
from perfsuite.gate.lines import Scope, say, text
from perfsuite.gate.timing import hold_time
from perfsuite.records import Line, Reading
from perfsuite.units import show_change

# Relative bound of "close" numbers in low precision; in fp32 it is the metric's own. Two orders of summation differ by
# some units in the last place: fp32 has 1.2e-7, bf16 7.8e-3, and a loss averages them down. fp16 (9.8e-4) skips other
# steps when one overflows, so it gets bf16's.
LOW_PRECISION_BOUND = 2e-2
# Numbers below this count as this large: a gradient norm near zero is what remains of terms around 1, and their own
# rounding, 1e-7, is all that it consists of.
FLOOR = 1e-3


def hold(metric: Metric, scope: Scope) -> Line:
    """Hold one metric; it must be on both sides and finite, whatever its rule."""
    new, old = scope.new.readings.get(metric.name), scope.old.readings.get(metric.name)
    if metric.hold not in RULES:
        raise UsageError(f"The metric {metric.name!r} holds by {metric.hold!r}. Known: {', '.join(RULES)}.")
    for whose, reading in (("the measurement", new), ("the baseline", old)):
        if reading and not all(is_number(x) for x in (reading.value, *reading.samples) if x is not None):
            return text(metric, "failed", old, new, note=f"{whose} holds a number that is not finite")
    if new is None or old is None:
        needless = metric.optional and old is None
        side = "the baseline lacks it" if new else "not measured"
        return text(metric, "not held" if needless else "missing", old, new, note=side)
    line = RULES[metric.hold](metric, new, old, scope)
    if line and metric.hold == "time" and line.status in ("regressed", "suspected"):
        notes = [note for note in (explain_time(scope.new, scope.old), line.note) if note]
        return msgspec.structs.replace(line, note="; ".join(notes))
    return line


def _shown(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    return text(metric, "shown", old, new, change=show_change(old.value, new.value))


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
    low = {"fp16", "bf16", "pure_bf16"} & set(scope.strategy.split("+")[1:])
    bound = LOW_PRECISION_BOUND if low else metric.bound
    pairs = list(zip(old.samples, new.samples, strict=False))
    differing = [step for step, (before, after) in enumerate(pairs) if not _agree(before, after, bound)]
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


RULES: dict[str, Callable[[Metric, Reading, Reading, Scope], Line]] = {
    "exact": _exact,
    "close": _close,
    "time": hold_time,
    "shown": _shown,
    "control": _shown,
    "undefined": _undefined,
}


def _agree(before: float | None, after: float | None, bound: float) -> bool:
    if before is None or after is None:
        return before is after
    return abs(after - before) <= bound * max(abs(before), FLOOR)


def _step(metric: Metric, sample: float | None) -> str:
    return "overflow" if sample is None else metric.show(sample)
