"""Sides of an A/B, and what is said of them."""

import gate_samples as samples
import msgspec

from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.terms import Terms
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.sample import Reading


def launched(count: int, **readings: Reading | None) -> list[Measurement]:
    """Launches of a side, one after another."""
    one = samples.measurement(**readings)
    return [msgspec.structs.replace(one, launches=[Launch(date="2026-11-21")]) for _ in range(count)]


def compared(a: list[Measurement], b: list[Measurement], *strategies: str, metrics=samples.METRICS) -> Comparison:
    """What is said of the sides."""
    names = (strategies[0], strategies[-1]) if strategies else ("zero3", "zero3")
    return compare(a, b, metrics, strategies=names, terms=Terms(tolerance=0.01, spread=0.01))
