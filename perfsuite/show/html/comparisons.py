"""The page of an A/B: each cell's metrics on both sides, with the evidence of what differs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.compare import ORDER, Comparison
from perfsuite.show.html.cell_evidence import Evidence, kind_of
from perfsuite.show.html.document import Document, PageEntry, Section, Table
from perfsuite.show.html.moved import names_of, tone_of
from perfsuite.show.text import line_words, trial_words, verdict_words
from perfsuite.show.text.comparison import explanation_lines
from perfsuite.show.text.verdict_text import last_lines
from perfsuite.system.units import show_several

SIDES = ("A", "B")


def comparisons_page(a: str, b: str, found: Sequence[Comparison], metrics: Iterable[Metric]) -> Document:
    """The page of the cells that have been compared so far."""
    known = names_of(metrics)
    counts = Counter(one.verdict.status for one in found)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    order = sorted(found, key=lambda one: ORDER.index(one.verdict.status))
    return Document(
        title="A/B comparison",
        verdict=f"B against A in {show_several(len(found), 'cell')}: {told}.",
        facts=[f"A: {a}", f"B: {b}"],
        tone=tone_of(order[0].verdict.status) if order else "",
        sections=[_section(one, known) for one in order],
    )


def _section(found: Comparison, metrics: Mapping[str, Metric]) -> Section:
    old, new, verdict = found.a, found.b, found.verdict
    rows: list[Sequence[str | PageEntry]] = []
    for line in verdict.lines:
        note = line_words.note_text(line)
        status = PageEntry(line.status, tone=tone_of(line.status) or "muted")
        change = PageEntry(line_words.change_text(line), sort=line.change)
        rows.append(
            [
                line.title,
                *line_words.sides_text(line),
                change,
                line_words.limit_text(line),
                status,
                PageEntry(note, wide=bool(note)),
            ]
        )
    head = ["metric", *SIDES, "change", "allowed", "verdict", "evidence"]
    tables = [Table(head=head, rows=rows, numbers=frozenset((1, 2, 3)))] if rows else []
    evidence = Evidence(old, new, SIDES)
    sentences = [verdict_words.comparison_summary(verdict)]
    if verdict.changed:
        sentences.append(f"Differ: {trial_words.changes_text(verdict.changed)}.")
    failures = [line for side in (old, new) for line in last_lines(side.failure)]
    return Section(
        heading=verdict.cell,
        sentences=sentences,
        charts=evidence.charts(metrics),
        tables=tables,
        text="\n".join([*explanation_lines(found.explanations), *failures]),
        kind=kind_of(new),
        tone=tone_of(verdict.status),
        badge=verdict.status,
        folded=False,
        inside=evidence.peak_by_category(),
    )
