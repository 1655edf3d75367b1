"""The open cells of a run: how many there are of each status, and which of a cell's times made it open, and why."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict
from perfsuite.show.text.words import change_text, note_text, trial_of
from perfsuite.units import show_several

MOST_REASONS = 2  # why a cell was not tried
MOST_OPEN = 10  # cells whose open times are said; the report has all
OPEN_MEANS = {
    "alarm": "may be slower and had no trial (--perf-trial)",
    "undecided": "may be slower, and no trial could decide it: a quieter machine may",
    "machine": "slower than in the baseline's runs, although nothing changed: a quieter machine may not be",
}
UNTRIED = "may be slower, and no trial could run"


def open_counts(results: Sequence[Result]) -> list[str]:
    """How many cells are open, by what that means; and how to decide about one that is slower without a change."""
    means = Counter(_meaning(result.verdict) for result in results if result.verdict.status in OPEN_MEANS)
    lines = [
        f"{status}: {show_several(count, 'cell')} {said}" for (status, said), count in sorted(means.items(), key=_place)
    ]
    if slower := [result for result in results if result.verdict.status == Status.MACHINE]:
        lines.append(_how_to_decide(slower[0]))
    return lines


def _place(counted: tuple[tuple[str, str], int]) -> int:
    (status, _), _ = counted
    return list(OPEN_MEANS).index(status)


def _meaning(verdict: Verdict) -> tuple[str, str]:
    untried = verdict.status == Status.UNDECIDED and _is_untried(verdict)
    return verdict.status, UNTRIED if untried else OPEN_MEANS[verdict.status]


def _how_to_decide(result: Result) -> str:
    """The command that would decide about a time that is slower without a change, and the option that makes it red."""
    commit = result.baseline.commit if result.baseline else ""
    other = commit.removesuffix("-dirty")[:12] or "a release or commit that you trust"
    trial = f"pytest --perf -k {result.verdict.cell} --perf-against={other}"
    return f"to decide: {trial}; to let such cells fail: --perf-open=fail"


def open_times(results: Sequence[Result]) -> list[str]:
    """Of each open cell, the lines that make it so, which need not be columns of the table, and why nothing was tried:
    ``gpt2_tiny-zero3-cpu_x2 (undecided): processor time +9.1 % (-2.0 % to +21.5 %, 24 pairs)``.
    """
    said = [_opened(result.verdict) for result in results if result.verdict.status in OPEN_MEANS]
    more = [f"and {show_several(len(said) - MOST_OPEN, 'open cell')} more"] if len(said) > MOST_OPEN else []
    return said[:MOST_OPEN] + more


def _opened(verdict: Verdict) -> str:
    """Lines of one note together, since the times of a cell are often open for one reason."""
    alike: dict[str, list[str]] = {}
    for line in verdict.lines:
        if line.status == verdict.status:
            note = note_text(msgspec.structs.replace(line, phases=[]))
            alike.setdefault(note, []).append(f"{line.title} {change_text(line)}".rstrip())
    times = [f"{', '.join(titles)} ({note})" if note else ", ".join(titles) for note, titles in alike.items()]
    return "; ".join([f"{verdict.cell} ({verdict.status}): {', '.join(times)}", *_why_untried(verdict)])


def _why_untried(verdict: Verdict) -> list[str]:
    """The first reasons why there was no trial, and how many more there are."""
    if verdict.status != Status.UNDECIDED or not _is_untried(verdict):
        return []
    reasons = trial_of(verdict)
    more = [f"and {show_several(len(reasons) - MOST_REASONS, 'more reason')}"] if len(reasons) > MOST_REASONS else []
    return reasons[:MOST_REASONS] + more


def _is_untried(verdict: Verdict) -> bool:
    """Whether there was nothing that a trial could revert, so that a quieter machine would change nothing."""
    return verdict.trial is not None and not verdict.trial.against
