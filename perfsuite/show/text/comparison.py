"""The text of an A/B comparison: a sentence, a table, the cause of the difference in memory, the versions.

gpt2_tiny-single-cpu_x1: B against A: improved: peak memory
  peak memory   5.12 MiB -> 5.09 MiB   -0.5 %   allowed 0   IMPROVED   (parameters -32.01 KiB: aten::tril)
peak memory:
  parameters                 583.01 KiB ->   551.00 KiB   -32.01 KiB
    aten::tril                32.00 KiB ->            –   -32.00 KiB
–: not among the largest operators of that side
differ: transformers 4.48.3 -> 5.23.0
"""

from collections.abc import Iterable, Iterator

from perfsuite.compare.compare import Comparison, Explanation
from perfsuite.compare.hurts import folded, worst_first
from perfsuite.records.suspects import part_name
from perfsuite.show.text.line_words import fact_text, signed
from perfsuite.show.text.trial_words import changes_text
from perfsuite.show.text.verdict_text import last_lines, table
from perfsuite.show.text.verdict_words import comparison_summary
from perfsuite.system.units import FACTS, show


def render_ab(comparison: Comparison) -> str:
    """Return the whole text."""
    verdict = comparison.verdict
    lines = [f"{verdict.cell}: {comparison_summary(verdict)}", *table(verdict)]
    order = [line.metric for line in worst_first(verdict.lines)]
    hidden = {line.metric for line in folded(verdict)}
    explained = sorted(
        (explanation for explanation in comparison.explanations if explanation.metric not in hidden),
        key=lambda one: order.index(one.metric),
    )
    lines += explanation_lines(explained)
    if any(None in (piece.old, piece.new) for one in explained for piece in one.pieces):
        lines.append("–: not among the largest operators of that side")
    if verdict.changed:
        lines.append(f"differ: {changes_text(verdict.changed)}")
    sides = {"A": comparison.a.failure, "B": comparison.b.failure}
    return "\n".join([*lines, *(line for side, failure in sides.items() for line in last_lines(failure, side))])


def explanation_lines(explanations: Iterable[Explanation]) -> Iterator[str]:
    """A line for each part that moved, and after it one for each of its operators."""
    for explanation in explanations:
        yield f"{explanation.title}:"
        for piece in explanation.pieces:
            if explanation.unit == FACTS:
                if piece.by:
                    yield f"  {fact_text(piece.part, piece.by)}"
                continue
            title = f"    {piece.operator}" if piece.operator else f"  {part_name(piece.part)}"
            old, new = ("–" if size is None else show(size, explanation.unit) for size in (piece.old, piece.new))
            change = (signed(piece.by, explanation.unit) if piece.by else "0") + (" at least" if piece.at_least else "")
            yield f"{title:<40} {old:>12} -> {new:>12}   {change}"
