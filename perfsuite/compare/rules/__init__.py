"""The rules that compare a metric's new reading with its old one; each returns a line of the verdict.

One file per ``Metric.hold``, with the same name and a ``RULE``. The catalog finds those of the user.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule, Summary
from perfsuite.compare.scope import Scope, changes, line_of
from perfsuite.errors import UsageError
from perfsuite.records.change import Change
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import Absent, BadNumber, OtherRelease, Reason, Uncounted, Unrepeated
from perfsuite.records.sample import Reading, is_number
from perfsuite.records.verdict import Line, Status

__all__ = ["RULES", "Rule", "Summary", "compare_metric", "rule_of", "why_wrong"]
SPREADS = 10  # how much more two launches of one side may differ than those that are known
FAR = 0.01  # of the old value: what such a metric must differ by at least, since few launches are known
RULES: dict[str, Rule] = {
    name: importlib.import_module(f"{__name__}.{name}").RULE
    for name in sorted(found.name for found in pkgutil.iter_modules(__path__))
    if not name.startswith("_")
}


def rule_of(metric: Metric) -> Rule:
    """The rule that the metric names; its catalog has checked the name."""
    rule: Rule = metric.rule or RULES[metric.hold]
    return rule


def compare_metric(metric: Metric, scope: Scope) -> Line | None:
    """Compare one metric, which both sides must have as a finite number; None if its rule asks for no more."""
    new, old = scope.new.readings.get(metric.name), scope.old.readings.get(metric.name)
    if new and old is None and (why := why_wrong(metric, new, scope.strategy)):
        return line_of(metric, Status.REGRESSED, old, new, reason=why)
    if new and old and (other := _another(metric, scope)):
        return line_of(metric, Status.NOT_COMPARED, old, new, reason=OtherRelease(release=other))
    if new and old and (why := _unrepeated(metric, scope)):
        far = scope.finite and _is_far(metric, new, old, scope)
        status = Status.REGRESSED if far else Status.NOT_COMPARED
        return None if metric.hold == "shown" else line_of(metric, status, old, new, reason=why, compared=far)
    if new and old and scope.finite:
        return _line_of_rule(metric, new, old, scope)
    if new is None and old is None and metric.optional:
        return None
    uncounted = _uncounted(metric, scope.new)
    if new is None and old is None and uncounted:
        return None if metric.hold == "shown" else line_of(metric, Status.NOT_COMPARED, old, new, reason=uncounted)
    if not (_is_finite(new) and _is_finite(old)):
        why = BadNumber(measured=not _is_finite(new), finite=False)
        return line_of(metric, Status.FAILED, old, new, reason=why, **_finite(old, new))
    if new is None or old is None:
        needless = old is None and (metric.optional or metric.name in scope.old.uncounted)
        if metric.hold == "shown" and (needless or (metric.optional and metric.derive)):
            return None  # its formula may leave it out, such as an MFU above 100 %
        status = Status.NOT_COMPARED if needless else Status.MISSING
        absent = Absent(measured=new is not None)
        return line_of(metric, status, old, new, reason=absent if new else uncounted or absent)
    return _line_of_rule(metric, new, old, scope)


def _line_of_rule(metric: Metric, new: Reading, old: Reading, scope: Scope) -> Line | None:
    """What the metric's rule says; None for a metric that is only shown. Raises UsageError for a rule that fails, or
    that says nothing: what is not compared must not pass.
    """
    if metric.hold == "shown":
        return None
    subject = f"The rule {metric.hold!r} of {metric.name}"
    try:
        line: object = rule_of(metric).hold(metric, new, old, scope)
    except Exception as error:
        if not metric.rule:
            raise
        raise UsageError(f"{subject} failed: {type(error).__name__}: {error}.") from error
    if not isinstance(line, Line):
        raise UsageError(f"{subject} returned {type(line).__name__}: return a Line, as line_of() makes.")
    return line


def _unrepeated(metric: Metric, scope: Scope) -> Reason | None:
    """Why the metric cannot be equal: another launch of one side had another value."""
    for side in (scope.old, scope.new):
        if metric.name in side.unrepeated:
            return Unrepeated(unit=metric.unit, other=side.unrepeated[metric.name])
    return None


def _is_far(metric: Metric, new: Reading, old: Reading, scope: Scope) -> bool:
    """Whether a metric that does not repeat itself is worse by much more than its launches differ."""
    sides = ((old, scope.old), (new, scope.new))
    before, after = ([one.value, side.unrepeated.get(metric.name, one.value)] for one, side in sides)
    higher, lower = min(after) - max(before), min(before) - max(after)
    gap = {"higher": higher, "lower": lower}.get(metric.worse, max(higher, lower))
    spread = max(max(values) - min(values) for values in (before, after))
    return gap > max(SPREADS * spread, max(FAR, metric.materiality.share) * max(map(abs, before)))


def _uncounted(metric: Metric, measurement: Measurement) -> Reason | None:
    """Why the metric could not be counted; None if it was, or should have been."""
    message = measurement.uncounted.get(metric.name, "")
    return Uncounted(message=message) if message else None


def why_wrong(metric: Metric, reading: Reading, strategy: str) -> Reason | None:
    """Why the reading is wrong, whatever the baseline has; None if it is not."""
    return rule_of(metric).wrong(metric, reading, strategy) if is_number(reading.value) else None


def _another(metric: Metric, scope: Scope) -> Change | None:
    """The release on which the metric depends, if its minor release differs on the other side."""
    sides = scope.old.versions, scope.new.versions
    old, new = ({name: _minor(side.get(name, "")) for name in metric.depends_on} for side in sides)
    return next(iter(changes(old, new)), None)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_finite(reading: Reading | None) -> bool:
    if reading is None:
        return True
    return all(is_number(number) for number in (reading.value, *reading.samples) if number is not None)


def _finite(old: Reading | None, new: Reading | None) -> Mapping[str, str]:
    """Values that JSON has no number for, as texts."""
    sides = {"old": old, "new": new}
    return {name: str(side.value) for name, side in sides.items() if side and not is_number(side.value)}
