"""The text of a verdict: a sentence, a table, the suspects and a command. Terminal and JUnit show exactly this.

t5_base-zero3+bf16-h200_x1: 1 of 4 metrics regressed
  peak memory    20.00 GiB -> 21.94 GiB   +9.7 %   allowed 0      REGRESSED   (activations +1.94 GiB)
  step time         412 ms ->    408 ms   -1.0 %   allowed +3 %   ok          detects +5 %
changed since the baseline: transformers 5.22.0 -> 5.23.0
accept:  pytest --perf -k t5_base-zero3+bf16-h200_x1 --perf-update=regressed --perf-reason="…"
"""

from collections.abc import Callable, Sequence

from perfsuite.compare.hurts import folded, worst_first
from perfsuite.records.failure import Failure
from perfsuite.records.verdict import RED, Line, Status, Verdict
from perfsuite.show.text import line_words, trial_words, verdict_words

GAP = "   "


def render(verdict: Verdict, failure: Failure | None = None) -> str:
    """Return the whole text. It ends with the last output of the measurement's ``failure``."""
    lines = [verdict_words.headline(verdict), *table(verdict), *not_compared(verdict)]
    if headroom := verdict_words.headroom_text(verdict):
        lines.append(f"headroom: {headroom}")
    if verdict.changed:
        lines.append(f"changed since the baseline: {trial_words.changes_text(verdict.changed)}")
    lines += [f"trial: {sentence}" for sentence in trial_words.trial_of(verdict)]
    lines += [f"trace: {verdict_words.trace_text(trace)}" for trace in verdict.traces]
    if accept := verdict_words.accept_text(verdict):
        lines.append(f"accept:  {accept}")
    if verdict.status == Status.INCOMPARABLE and verdict.trial:
        lines.append("or ask nothing that needs another environment: --perf-trial=never")
    return "\n".join([*lines, *last_lines(failure)])


def not_compared(verdict: Verdict) -> list[str]:
    """``not compared: step time, iteration time (no times of this machine: …)``, each reason once."""
    titles: dict[str, list[str]] = {}
    for line in verdict.lines:
        if line.status == Status.NOT_COMPARED:
            titles.setdefault(line_words.note_text(line), []).append(line.title)
    return [f"not compared: {', '.join(names)} ({why})" for why, names in titles.items()]


def last_lines(failure: Failure | None, side: str = "") -> list[str]:
    """The last output of the rank that failed, if any. ``side`` is A or B of a comparison."""
    if failure is None or not failure.tail:
        return []
    source = "the command" if failure.of_command else "the rank server"
    whose = source if failure.rank is None else f"rank {failure.rank}"
    return [
        f"the last lines of {whose}{f' of {side}' if side else ''}:",
        *(f"  | {line}".rstrip() for line in failure.tail.splitlines()),
    ]


def table(verdict: Verdict) -> list[str]:
    """One row per line, what hurts first, and one for all that are folded below it."""
    below = folded(verdict)
    names = {line.metric for line in below}
    rows = rows_of(verdict, [line for line in worst_first(verdict.lines) if line.metric not in names])
    also = [
        f"{line.title} {line_words.change_text(line) or ' -> '.join(line_words.sides_text(line))}" for line in below
    ]
    return rows + ([f"  also moved: {', '.join(also)}"] if also else [])


def rows_of(verdict: Verdict, lines: Sequence[Line]) -> list[str]:
    """A row for each of these; columns are as wide as their widest text, numbers right, words left."""
    allowed = [f"allowed {limit}" if (limit := line_words.limit_text(line)) else "" for line in lines]
    columns = [
        _column([line.title for line in lines], str.ljust),
        *(_column([line_words.sides_text(line)[side] for line in lines], str.rjust) for side in (0, 1)),
        _column([line_words.change_text(line) for line in lines], str.rjust),
        _column(allowed, str.ljust),
        _column([_status(line, verdict) for line in lines], str.ljust),
        _column([line_words.detects_text(line) for line in lines], str.ljust),
    ]
    rows = []
    for line, (title, old, new, *rest) in zip(lines, zip(*columns, strict=True), strict=True):
        said = line_words.note_text(line)
        note = [f"({said})"] if said and line.status != Status.NOT_COMPARED else []
        cells = [f"  {title}", f"{old} -> {new}", *(text for text in rest if text), *note]
        rows.append(GAP.join(cells).rstrip())
    return rows


def _column(texts: Sequence[str], align: Callable[[str, int], str]) -> list[str]:
    width = max(map(len, texts), default=0)
    return [align(text, width) for text in texts]


def _status(line: Line, verdict: Verdict) -> str:
    """A status that makes the cell red is in capitals; an improvement only if nothing is worse."""
    loud = line.status == verdict.status if line.status == Status.IMPROVED else line.status in RED
    return line.status.upper() if loud else line.status
