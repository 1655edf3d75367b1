"""Compared closely: losses and gradient norms, step by step, within the bound of the precision."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.scope import Scope, agree, bound_of, line_of, low_precision
from perfsuite.records.reasons import FewerSamples, NoCommonStep, StepDiffers
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Status


def compare(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line:
    """Every common step: within the bound of the precision, and overflowed on both sides or on neither."""
    bound = bound_of(metric, scope.low_precision)
    pairs = list(zip(old.samples, new.samples, strict=False))
    limit = Limit(bound=Bound.CLOSE, value=bound)
    if len(new.samples) < len(old.samples):
        fewer = FewerSamples(measured=len(new.samples), recorded=len(old.samples))
        return line_of(metric, Status.MISSING, old, new, reason=fewer)
    if old.samples != new.samples and not all(agree(before, after, bound) for before, after in pairs):
        differing = [step for step, (before, after) in enumerate(pairs) if not agree(before, after, bound)]
        before, after = pairs[differing[0]]
        why = StepDiffers(first=differing[0], differing=len(differing), steps=len(pairs))
        more = {"limit": limit, "reason": why, "compared": before is not None and after is not None}
        return line_of(metric, Status.REGRESSED, old, new, old=before, new=after, **more)
    for before, after in reversed(pairs):
        if before is not None and after is not None:
            return line_of(metric, Status.OK, old, new, old=before, new=after, compared=True, limit=limit)
    return line_of(metric, Status.MISSING, old, new, reason=NoCommonStep())


def differs(metric: Metric, first: Reading, other: Reading, strategy: str) -> bool:
    """Whether two launches did not train the same way."""
    bound = bound_of(metric, low_precision(strategy))
    return not all(agree(*pair, bound) for pair in zip(first.samples, other.samples, strict=False))


RULE = Rule(hold=compare, summary=lambda numbers: numbers[-1], differs=differs)
