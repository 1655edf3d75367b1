"""The open cells of a run: how many there are, which of a cell's times made it open, why, and what would decide it."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from perfsuite.records.reasons import Slower, WithGroup
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.show.text.line_words import change_text, note_text
from perfsuite.system.units import show_several

MOST_OPEN = 10  # cells whose open times are said; the report has all
NEVER = "not tried"
_UNEXPLAINED = "slower than in the baseline's runs, although no change was seen: a quieter machine may not be"
_UNTRIED = "may be slower and had no trial (--perf-trial)"
_OUT_OF_TIME = "may be slower, and the time for open cells ended before they were decided: give more by --perf-budget"
_TOO_NOISY = "may be slower, and the machine is too noisy to decide it soon: a quieter one may"
_NOISE = "may be slower, and all pairs of launches could not decide it: a quieter machine may"


def open_counts(results: Sequence[Result]) -> list[str]:
    """How many cells are open, by what that means; and how to decide about one that is slower without a change."""
    cells = [result for result in results if result.verdict.status == Status.OPEN]
    means = Counter(_meaning(result.verdict) for result in cells)
    lines = [f"open: {show_several(count, 'cell')} {meaning}" for meaning, count in means.items()]
    if slower := [result for result in cells if _meaning(result.verdict) == _UNEXPLAINED]:
        lines.append(_how_to_decide(slower[0]))
    return lines


def is_unexplained(line: Line) -> bool:
    """Whether a time is slower than stored ones although nothing changed, so there is nothing to try."""
    return isinstance(line.reason, Slower)


def _meaning(verdict: Verdict) -> str:
    lines = [line for line in verdict.lines if line.status == Status.OPEN]
    if verdict.trial and verdict.trial.unfinished:
        return _TOO_NOISY if verdict.trial.is_too_noisy else _OUT_OF_TIME
    if any(line.interval for line in lines):
        return _NOISE
    return _UNEXPLAINED if any(map(is_unexplained, lines)) else _UNTRIED


def _how_to_decide(result: Result) -> str:
    """The command that would decide about a time that is slower without a change, and the option that makes it red."""
    commit = result.baseline.commit if result.baseline else ""
    other = commit.removesuffix("-dirty")[:12] or "a release or commit that you trust"
    trial = f"pytest --perf -k {result.verdict.cell} --perf-against={other}"
    return f"to decide: {trial}; to let such cells fail: -o perf_open=fail"


def open_times(results: Sequence[Result]) -> list[str]:
    """Of each open cell, the lines that make it so, which need not be columns of the table:
    ``gpt2_tiny-zero3-cpu_x2 (open): processor time +9.1 % (-2.0 % to +21.5 %, 24 pairs)``. A time that is judged with
    those of other cells is said once for all of them, elsewhere.
    """
    said = [text for result in results if result.verdict.status == Status.OPEN and (text := _opened(result.verdict))]
    more = [f"and {show_several(len(said) - MOST_OPEN, 'open cell')} more"] if len(said) > MOST_OPEN else []
    return said[:MOST_OPEN] + more


def _opened(verdict: Verdict) -> str:
    """Lines of one note together, since the times of a cell are often open for one reason."""
    alike: dict[str, list[str]] = {}
    for line in verdict.lines:
        if line.status == verdict.status and not isinstance(line.reason, WithGroup):
            note = note_text(msgspec.structs.replace(line, phases=[]))
            alike.setdefault(note, []).append(f"{line.title} {change_text(line)}".rstrip())
    times = [f"{', '.join(titles)} ({note})" if note else ", ".join(titles) for note, titles in alike.items()]
    return f"{verdict.cell} (open): {', '.join(times)}" if times else ""
