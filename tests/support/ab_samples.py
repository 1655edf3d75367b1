"""Sides of an A/B, and what is said of them."""

import gate_samples as samples
import msgspec

from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.paired_times import differences, errors
from perfsuite.compare.pooling import Difference, Effect, Pool, groups_of
from perfsuite.compare.terms import MOST_RED_RATE, Terms
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.sample import Reading


def launched(count: int, **readings: Reading | None) -> list[Measurement]:
    """Launches of a side, one after another."""
    one = samples.measurement(**readings)
    return [msgspec.structs.replace(one, launches=[Launch(date="2026-11-21")]) for _ in range(count)]


def compared(a: list[Measurement], b: list[Measurement], *strategies: str, metrics=samples.METRICS) -> Comparison:
    """What is said of the sides. Their times are judged by these pairs alone; one launch of each counts only."""
    names = (strategies[0], strategies[-1]) if strategies else ("zero3", "zero3")
    terms = Terms(tolerance=0.01, spread=0.01)
    cell = b[0].cell
    pooled: dict[str, Effect] = {}
    for metric in metrics if len(b) > 1 else ():
        if metric.is_time and all(metric.name in launch.readings for launch in (*a, *b)):
            pairs = zip(differences(a, b, metric.name), errors(a, b, metric.name), strict=True)
            known = {cell: [Difference(metric.sign * by, error) for by, error in pairs]}
            pooled[metric.name] = Pool(known, groups_of({cell: []}), terms.tolerance, MOST_RED_RATE).of(cell)
    return compare(a, b, metrics, strategies=names, terms=terms, pooled=pooled)
