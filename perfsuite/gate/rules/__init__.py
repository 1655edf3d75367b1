"""The rules that compare a metric's new reading with its old one; each returns a line of the verdict.

One file per ``Metric.hold``, with the same name and a ``RULE``. The catalog finds those of the user.
"""

import importlib
import pkgutil

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope, changes, text
from perfsuite.gate.rules._rule import Rule, Summary
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Line
from perfsuite.wire.sample import Reading, is_number

__all__ = ["RULES", "Rule", "Summary", "hold", "rule_of", "why_wrong"]
RULES: dict[str, Rule] = {
    name: importlib.import_module(f"{__name__}.{name}").RULE
    for name in sorted(found.name for found in pkgutil.iter_modules(__path__))
    if not name.startswith("_")
}


def rule_of(metric: Metric) -> Rule:
    """The rule that the metric names; its catalog has checked the name."""
    rule: Rule = metric.rule or RULES[metric.hold]
    return rule


def hold(metric: Metric, scope: Scope) -> Line | None:
    """Compare one metric, which both sides must have as a finite number; None if its rule asks for no more."""
    new, old = scope.new.readings.get(metric.name), scope.old.readings.get(metric.name)
    rule = rule_of(metric).hold
    if new and old is None and (reason := why_wrong(metric, new, scope.strategy)):
        return text(metric, "regressed", old, new, note=reason)
    if new and old and (other := _another(metric, scope)):
        return text(metric, "not held", old, new, note=f"counts depend on the release: {other}")
    if new and old and scope.finite:
        return None if metric.hold == "shown" else rule(metric, new, old, scope)
    if new is None and old is None and metric.optional:
        return None
    if new is None and old is None and (reason := uncounted(metric, scope.new)):
        return None if metric.hold == "shown" else text(metric, "not held", old, new, note=reason)
    if not (_is_finite(new) and _is_finite(old)):
        whose = "the baseline" if _is_finite(new) else "the measurement"
        return text(metric, "failed", old, new, note=f"{whose} has a number that is not finite")
    if new is None or old is None:
        needless = old is None and (metric.optional or metric.name in scope.old.uncounted)
        if metric.hold == "shown" and (needless or (metric.optional and metric.derive)):
            return None  # its formula may leave it out, such as an MFU above 100 %
        side = "the baseline lacks it" if new else uncounted(metric, scope.new) or "not measured"
        return text(metric, "not held" if needless else "missing", old, new, note=side)
    return rule(metric, new, old, scope)


def uncounted(metric: Metric, measurement: Measurement) -> str:
    """``cannot be counted: `` and the reason; empty for a metric that was counted, or should have been."""
    reason = measurement.uncounted.get(metric.name, "")
    return f"cannot be counted: {reason}" if reason else ""


def why_wrong(metric: Metric, reading: Reading, strategy: str) -> str:
    """Why the reading is wrong, whatever the baseline has; empty if it is not."""
    return rule_of(metric).wrong(metric, reading, strategy) if is_number(reading.value) else ""


def _another(metric: Metric, scope: Scope) -> str:
    """``python 3.11 -> 3.12``: the metric depends on it, and its minor release differs on the other side."""
    sides = scope.old.versions, scope.new.versions
    old, new = ({name: _minor(side.get(name, "")) for name in metric.depends_on} for side in sides)
    return ", ".join(changes(old, new))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_finite(reading: Reading | None) -> bool:
    if reading is None:
        return True
    return all(is_number(number) for number in (reading.value, *reading.samples) if number is not None)
