"""How a baseline changes, in one line per metric."""

from collections.abc import Iterable

from perfsuite.baselines.ledger import magnitudes
from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement
from perfsuite.system.units import show_both, show_change


def moved(old: Measurement | None, new: Measurement, metrics: Iterable[Metric]) -> list[str]:
    """``peak memory  3.66 MiB -> 4.02 MiB  +9.8 %`` for every compared metric that changed, and the outcome if it
    changed; nothing for a new baseline.
    """
    if old is None:
        return []
    known = {metric.name: metric for metric in metrics}
    lines = [] if old.outcome == new.outcome else [f"outcome  {old.outcome} -> {new.outcome}"]
    for name, magnitude in magnitudes(old, new, known.values()).items():
        before, after = show_both(magnitude.old, magnitude.new, known[name].unit)
        if magnitude.old is None or magnitude.new is None:
            lines.append(f"{known[name].title}  {before} -> {after}")
        elif magnitude.old != magnitude.new:
            change = show_change(magnitude.old, magnitude.new)
            note = "  (another machine or driver)" if known[name].is_time and magnitude.ratio is None else ""
            lines.append(f"{known[name].title}  {before} -> {after}  {change}{note}")
        elif old.readings[name].parts != new.readings[name].parts:
            lines.append(f"{known[name].title}  {before}, in other parts")
    return lines
