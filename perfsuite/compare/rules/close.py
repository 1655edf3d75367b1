"""Compared closely: losses and gradient norms, step by step, within the bound of the precision."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, agree, bound_of, low_precision, say, text
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line
from perfsuite.units import show_change


def hold(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Every common step: within the bound of the precision, and overflowed on both sides or on neither."""
    bound = bound_of(metric, scope.low_precision)
    pairs = list(zip(old.samples, new.samples, strict=False))
    allowed = f"±{bound * 100:g} %"
    if len(new.samples) < len(old.samples):
        note = f"only {len(new.samples)} of the baseline's {len(old.samples)} steps were measured"
        return text(metric, "missing", old, new, note=note)
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


def _step(metric: Metric, sample: float | None) -> str:
    return "overflow" if sample is None else metric.show(sample)


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> str:
    """Why two launches did not train the same way."""
    bound = bound_of(metric, low_precision(strategy))
    if all(agree(*pair, bound) for pair in zip(first.samples, other.samples, strict=False)):
        return ""
    return f"{metric.title} develops differently in launch {{number}} than in the first."


RULE = Rule(hold=hold, summary=lambda numbers: numbers[-1], differs=differs)
