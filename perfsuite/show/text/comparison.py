"""The text of an A/B comparison: a sentence, a table, the cause of the difference in memory, the versions.

gpt2_tiny-single-cpu_x1: improved: peak memory
  peak memory   5.12 MiB -> 5.09 MiB   -0.5 %   allowed 0   IMPROVED   (parameters -32.01 KiB: aten::tril)
peak memory:
  parameters                 583.01 KiB ->   551.00 KiB   -32.01 KiB
    aten::tril                32.00 KiB ->            –   -32.00 KiB
–: not among the largest operators of that side
differ: transformers 4.48.3 -> 5.23.0
"""

from perfsuite.compare.compare import Comparison
from perfsuite.records.failure import Failure
from perfsuite.show.text.verdict_text import last_lines, table


def render_ab(comparison: Comparison) -> str:
    """Return the whole text."""
    verdict = comparison.verdict
    lines = [verdict.headline, *table(verdict), *comparison.explanation]
    if any("–" in line for line in comparison.explanation):
        lines.append("–: not among the largest operators of that side")
    if verdict.changed:
        lines.append(f"differ: {', '.join(verdict.changed)}")
    failures: list[Failure | None] = [comparison.a.failure, comparison.b.failure]
    return "\n".join([*lines, *(line for failure in failures for line in last_lines(failure))])
