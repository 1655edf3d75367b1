"""Sides of an A/B, and what is said of them."""

import gate_samples as samples
import msgspec

from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.grid_groups import Effect, groups_of
from perfsuite.compare.paired_times import differences, errors
from perfsuite.compare.pooled_pairs import Difference
from perfsuite.compare.pooling import Pool
from perfsuite.compare.terms import MOST_RED_RATE, Terms
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.sample import Reading
from perfsuite.show.html.comparisons import comparisons_page
from perfsuite.show.html.document import Document, render


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


def page_of(document: Document) -> str:
    return render(document).decode()


def with_suspects(size: int, **suspects: int) -> Reading:
    named = {f"activations: {name} @ h.0": bytes_ for name, bytes_ in suspects.items()}
    return msgspec.structs.replace(
        samples.memory(size, activations=8 * samples.GIB + size - 20 * samples.GIB), suspects=named
    )


def compared_sides(catalog) -> Document:
    """The page of an ``ab`` whose B is slower and needs more."""
    fat = with_suspects(21 * samples.GIB, softmax=2 * samples.GIB)
    slow = samples.times(*(1.05 * seconds for seconds in (0.40, 0.41, 0.42, 0.41)))
    found = compared(
        launched(8, peak_memory_bytes=with_suspects(20 * samples.GIB, softmax=samples.GIB)),
        launched(8, peak_memory_bytes=fat, step_time_seconds=slow),
    )
    return comparisons_page("torch==1", "here", [found], catalog.all("metric").values())
