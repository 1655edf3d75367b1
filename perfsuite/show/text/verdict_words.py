"""Verdicts as text: what hurts most, in a line. Only here are their sentences made."""

from collections.abc import Sequence

from perfsuite.compare.hurts import worst_of
from perfsuite.records.reasons import SideFailed, SidesEnded, SomeSteps, Wrong
from perfsuite.records.verdict import (
    NEED_A_REASON,
    ORDER,
    Bound,
    EvidenceTrace,
    Line,
    Status,
    TraceKind,
    Verdict,
)
from perfsuite.show.text.line_words import change_text, fact_text, moves_text, sides_text
from perfsuite.show.text.reasons import origin_texts, words_of
from perfsuite.system.units import (
    FACTS,
    show,
    show_bytes,
    show_part,
    some,
)

REASON = ' --perf-reason="…"'
MOST_FACTS = 2  # of a line that a sentence names
PERFETTO, MEMORY_VIZ = "https://ui.perfetto.dev", "https://docs.pytorch.org/memory_viz"


def trace_text(trace: EvidenceTrace) -> str:
    """One trace, or what is wrong with it."""
    if trace.kind == TraceKind.PERFETTO:
        return f"{trace.path}: open it in {PERFETTO}"
    if trace.kind == TraceKind.SNAPSHOTS:
        return f"{trace.path}: open them in {MEMORY_VIZ}"
    if trace.kind == TraceKind.OTHER_PEAK:
        peak, measured = (show_bytes(size or 0) for size in (trace.peak_bytes, trace.measured_bytes))
        return f"the traced launch peaked at {peak}, not as measured: {measured}"
    if trace.kind == TraceKind.FAILED:
        return f"the traced launch failed: {trace.message}"
    if trace.kind == TraceKind.BASELINE_FAILED:
        return f"the baseline's side could not be traced: {trace.message}"
    return trace.message


def accept_text(verdict: Verdict, cells: str = "", *, reason: bool = True) -> str:
    """The command that accepts it, or several ``cells``; empty if nothing may be accepted. ``reason``: with the option
    for it, if one is needed.
    """
    if verdict.accept is None:
        return ""
    command = f"{verdict.collect} -k {cells or verdict.cell} --perf-update={verdict.accept}"
    return command + (REASON if reason and verdict.accept in NEED_A_REASON else "")


def headroom_text(verdict: Verdict) -> str:
    """``2.94 GiB of 24.00 GiB are left``; empty if unknown."""
    if verdict.headroom is None:
        return ""
    return f"{show_bytes(verdict.headroom.left_bytes)} of {show_bytes(verdict.headroom.capacity_bytes)} are left"


# What a person says of a leak, with its line's new number.
LEAKS = {
    "grown_bytes": "leaks {} of tensors in every step",
    "kept_tensor_bytes": "leaks {} of tensors in every step",
    "host_grown_bytes": "leaks {} of host memory in every step",
    "host_left_bytes": "leaks {} of host memory in every step",
    "kept_host_bytes": "leaks {} of host memory in every step",
    "open_files_left": "leaves {} more open file(s) in every step",
    "kept_files": "leaves {} more open file(s) in every step",
    "leaked_objects": "leaves {} more object(s) in every step",
    "kept_objects": "leaves {} more object(s) in every step",
}


def worst_text(verdict: Verdict) -> str:
    """What hurts most, with the line of the user's code if it is known: ``peak memory +9.8 % (3.66 MiB → 4.02 MiB) at
    train.py:14 in step``; empty if no line is red.
    """
    line = worst_of(verdict)
    if line is None:
        return ""
    return ", ".join([_moved_text(line) + at_text([line]), *origin_texts(line.reason)])


def _moved_text(line: Line) -> str:
    """Of facts those that differ, of an equal number the part that grew, of a leak its size, otherwise both sides."""
    if line.unit == FACTS and line.moves:
        return f"{line.title}: {some([fact_text(move.part, move.by) for move in line.moves], MOST_FACTS)}"
    if isinstance(line.reason, SomeSteps):
        return f"{line.title} {change_text(line)} in the mean"
    before, now = sides_text(line)
    if line.moves and line.old == line.new:
        return f"{line.title} {now} as before, but in other parts: {moves_text(line.moves[:1], line.unit)}"
    if leak := leak_text([line]):
        return leak
    if line.change is None:
        return f"{line.title} {before} → {now}"
    sides = f" ({before} → {now})" if before != now else ""  # of a mean that moved, the median steps read alike
    return f"{line.title} {change_text(line)}{sides}"


def leak_text(lines: Sequence[Line]) -> str:
    """``leaks 4 B to 1.00 KiB of tensors in every step``, of one metric's lines; empty if they show no leak."""
    first = lines[0]
    if first.metric not in LEAKS or first.status != Status.REGRESSED:
        return ""
    old = [line.old if isinstance(line.old, int | float) else 0 for line in lines]
    sizes = [line.new - before for line, before in zip(lines, old, strict=True) if isinstance(line.new, int | float)]
    if not sizes:
        return ""
    shown = dict.fromkeys(show(size, first.unit) for size in (min(sizes), max(sizes)))
    return LEAKS[first.metric].format(" to ".join(shown))


def at_text(lines: Sequence[Line]) -> str:
    """`` at train.py:14 in step``: the line of the user's code that they share; empty if they share none."""
    places = {next((move.line for move in line.moves if move.line), "") for line in lines}
    return f" at {place}" if len(places) == 1 and (place := places.pop()) else ""


def headline(verdict: Verdict) -> str:
    """The verdict in a sentence, with the cell's name."""
    return f"{verdict.cell}: {summary(verdict)}"


def summary(verdict: Verdict) -> str:
    """The same without the cell's name."""
    ended = f"; its quarantine ended on {verdict.quarantine_ended}" if verdict.quarantine_ended else ""
    return ("emulated " if verdict.emulated else "") + _said(verdict) + ended


def _said(verdict: Verdict) -> str:
    why = verdict.reason
    said = words_of(why) if why else ""
    if isinstance(why, Wrong):
        return f"there is no baseline, and {said}"
    if verdict.status == Status.INCOMPARABLE:
        return f"incomparable, {said}" if said else _count(verdict)
    if isinstance(why, SidesEnded):
        return f"{verdict.status}: {said}"
    if why:
        return said
    worst = worst_text(verdict)
    return f"{worst}; {_count(verdict)}" if worst else _count(verdict)


def _count(verdict: Verdict) -> str:
    """``1 of 4 metrics regressed, 1 improved``; metrics that were not compared do not count."""
    lines = verdict.lines
    whole = verdict.trial is not None and verdict.trial.whole
    statuses = [
        Status.OK if line.status == Status.IMPROVED and (whole or _is_time(line)) else line.status for line in lines
    ]
    not_compared = [line.title for line in lines if line.status == Status.NOT_COMPARED]
    held = show_part(statuses.count(verdict.status), len(lines) - len(not_compared), "metric")
    parts = [f"{held} {verdict.status}"]
    quiet = (verdict.status, Status.OK, Status.UNSUPPORTED)
    others = [other for other in ORDER if other in statuses and other not in quiet]
    parts += [f"{statuses.count(other)} {other}" for other in others]
    return ", ".join(parts) + (f" ({', '.join(not_compared)} not compared)" if not_compared else "")


def _is_time(line: Line) -> bool:
    """A faster time is as good as ok."""
    return line.limit is not None and line.limit.bound in (Bound.BEYOND, Bound.PAIRS)


DIRECTION = "B against A: "


def comparison_summary(verdict: Verdict) -> str:
    """Of an A/B: ``B against A: regressed: step time; improved: peak memory``. A may well be the newer side."""
    if verdict.reason:
        said = words_of(verdict.reason)
        of_one_side = isinstance(verdict.reason, SideFailed)
        return said if of_one_side else f"{DIRECTION}{verdict.status}: {said}"
    known = (Status.FAILED, Status.REGRESSED, Status.OPEN, Status.IMPROVED, Status.IMMATERIAL)
    parts = [
        f"{status}: {', '.join(titles)}"
        for status in known
        if (titles := [line.title for line in verdict.lines if line.status == status])
    ]
    return f"{DIRECTION}{'; '.join(parts) or Status.OK}"


def ignored_text(files: Sequence[str]) -> str:
    """Accepted files that no commit will have."""
    return f"git ignores {some(files, 3)}, so no other clone gets what was accepted: change .gitignore."
