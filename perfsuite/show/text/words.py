"""Verdicts, lines, changes and causes as text: the only place where their sentences are made."""

from collections.abc import Mapping, Sequence

from perfsuite.compare.hurts import worst_of
from perfsuite.records.change import Cause, Change, Fixed, How, Problem, TrialReport
from perfsuite.records.reasons import SideFailed, SidesEnded, StepDiffers, Wrong
from perfsuite.records.suspects import part_name
from perfsuite.records.verdict import (
    NEED_A_REASON,
    ORDER,
    Bound,
    EvidenceTrace,
    Line,
    LineInterval,
    Move,
    Number,
    Status,
    TraceKind,
    Verdict,
)
from perfsuite.show.text.reasons import most_in, origin_texts, words_of
from perfsuite.system.units import (
    ERROR,
    FACTS,
    SECONDS,
    listed,
    show,
    show_both,
    show_bytes,
    show_change,
    show_part,
    show_ratio,
    show_rough,
    show_several,
    some,
)

REASON = ' --perf-reason="…"'
MOST_FACTS = 2  # of a line that a sentence names
MOST_FILES = 3  # of the user's code that a change names
PERFETTO, MEMORY_VIZ = "https://ui.perfetto.dev", "https://docs.pytorch.org/memory_viz"


def sides_text(line: Line) -> tuple[str, str]:
    """Both sides' numbers, ``3.66 MiB`` and ``4.02 MiB``, or the words that a side has instead."""
    nothing = "overflow" if isinstance(line.reason, StepDiffers) else "none"
    if isinstance(line.old, str) or isinstance(line.new, str):
        return _word(line.old, line.unit, nothing), _word(line.new, line.unit, nothing)
    return show_both(line.old, line.new, line.unit, nothing)


def _word(side: Number | str | None, unit: str, nothing: str) -> str:
    return side if isinstance(side, str) else nothing if side is None else show(side, unit)


def change_text(line: Line) -> str:
    """``+9.8 %``; empty if nothing was compared."""
    if not line.compared:
        return ""
    if line.ratio is not None:
        return show_change(1, line.ratio)
    if isinstance(line.old, int | float) and isinstance(line.new, int | float):
        return show_change(line.old, line.new)
    return ""


def line_text(line: Line) -> str:
    """``peak memory 3.66 MiB → 4.02 MiB (+9.8 %)``; without a share if there is none."""
    change = f" ({change_text(line)})" if line.change is not None else ""
    return f"{line.title} {' → '.join(sides_text(line))}{change}"


def limit_text(line: Line) -> str:
    """What is allowed: ``0``, ``±2 %``, ``+3.0 %``; empty without a limit."""
    if line.limit is None:
        return ""
    value = line.limit.value
    texts = {
        Bound.EQUAL: "0",
        Bound.BELOW: f"below {show_ratio(value)}",
        Bound.CLOSE: f"±{value * 100:g} %",
        Bound.UP_TO: f"up to {show(value, line.unit)}",
        Bound.BEYOND: ("-" if value < 0 else "+") + show_ratio(abs(value)),
        Bound.PAIRS: f"±{show_ratio(value)}",
    }
    return texts[line.limit.bound]


def detects_text(line: Line) -> str:
    """``detects +5.0 %``: the smallest slow-down that the line can show."""
    return "" if line.detects is None else f"detects +{show_ratio(line.detects)}"


def note_text(line: Line) -> str:
    """What explains the line: the interval of a trial, what stored times said, the reason, the evidence."""
    interval = interval_text(line.interval) if line.interval else ""
    found = [interval, stored_text(line), words_of(line.reason) if line.reason else ""]
    return "; ".join(filter(None, [*found, evidence_text(line)]))


def stored_text(line: Line) -> str:
    """``stored times: +38.0 %``, of a time that a trial decided: its change is that of the trial."""
    return "" if line.stored is None else f"stored times: {show_change(1, 1 + line.stored)}"


def tried_text(line: Line) -> str:
    """``+9.8 %``, or ``+9.8 % trial`` if pairs say so, which need not agree with the two numbers beside it."""
    return f"{change_text(line)} trial" if line.interval else change_text(line)


def interval_text(interval: LineInterval) -> str:
    """``-1.1 % to +0.3 %, 3 pairs``."""
    return f"{range_text(interval)}, {show_several(interval.pairs, 'pair')}"


def range_text(interval: LineInterval) -> str:
    """``-1.1 % to +0.3 %``."""
    return f"{show_change(1, interval.low)} to {show_change(1, interval.high)}"


def evidence_text(line: Line) -> str:
    """``activations +1.94 GiB: aten::softmax in transformer.h.0-11.attn``; or the phases of a step."""
    if line.phases:
        return ", ".join(_part(move, SECONDS) for move in line.phases)
    if line.unit == ERROR:
        return most_in({move.operator: move.by for move in line.moves}) if line.moves else ""
    return moves_text(line.moves, line.unit)


def moves_text(moves: Sequence[Move], unit: str) -> str:
    """``activations +1.94 GiB: aten::softmax in transformer.h.0-11.attn``."""
    parts: dict[str, list[Move]] = {}
    for move in moves:
        parts.setdefault(move.part, []).append(move)
    return "; ".join(_evidence(inside, unit) for inside in parts.values())


def _evidence(moves: Sequence[Move], unit: str) -> str:
    whole, *inside = moves
    if not inside:
        return _part(whole, unit)
    if len(inside) == 1:
        return f"{_part(whole, unit)}: {place_text(inside[0])}"
    return f"{_part(whole, unit)}: {', '.join(f'{place_text(one)} {signed(one.by, unit)}' for one in inside)}"


def fact_text(fact: str, by: Number) -> str:
    """``now wrappers DistributedDataParallel``, of what is active."""
    return f"{'now' if by > 0 else 'no longer'} {fact}"


def _part(move: Move, unit: str) -> str:
    if unit == FACTS:
        return fact_text(move.part, move.by)
    at = f" at {move.line}" if move.line else ""
    return f"{part_name(move.part)} {signed(move.by, unit)}{at}"


def place_text(move: Move) -> str:
    """``aten::softmax in transformer.h.0-11.attn``, ``aten::add at train.py:14 in step``. A phase names less than a
    line does.
    """
    is_phase = move.module.startswith("(") and move.line
    module = f" in {move.module}" if move.module and not is_phase else ""
    return f"{move.operator}{module}" + (f" at {move.line}" if move.line else "")


def signed(number: Number, unit: str) -> str:
    """``+1.94 GiB``."""
    return f"{'-' if number < 0 else '+'}{show(abs(number), unit)}"


def release_text(change: Change) -> str:
    """``torch 2.12.0 -> 2.13.0``."""
    return f"{change.name} {change.before} -> {change.after}"


def before_text(change: Change) -> str:
    """``torch 2.12.0`` or ``no triton``: what the other side has."""
    return f"no {change.name}" if change.is_added else f"{change.name} {change.before}"


def text_of_change(change: Change) -> str:
    """The change, with the user's files that differ: ``your code 1f0c93ab -> here (helper.py, net.py and 2 more)``."""
    files = f" ({some(change.files, MOST_FILES)})" if change.files else ""
    return release_text(change) + files


def changes_text(changes: Sequence[Change]) -> str:
    """All of them, separated by commas."""
    return ", ".join(map(text_of_change, changes))


_FIXED = {
    Fixed.NOT_A_PACKAGE: "it is not a package that uv can install",
    Fixed.SET_BY_CODE: "your code or a library sets it",
    Fixed.ONLY_DIGEST: "only a digest of its value was recorded",
    Fixed.NO_GIT: "this is no git repository that has its older content: measure in a clone, or accept the cell anew",
    Fixed.GIT_FAILS: "{}",
    Fixed.NOT_FETCHED: "{} Fetch the history first: git fetch --unshallow",
    Fixed.NOT_KEPT: "the older content of {} is in no commit here: commit what a cell reads, and accept the cell anew",
    Fixed.IN_LFS: "the older content of {} is in git LFS and not here: git lfs fetch --all",
    Fixed.NO_RELEASE: "it is no release of the package index",
    Fixed.ONE_BUILD: "the package index has one build of a release",
    Fixed.BY_PATH: "its shared libraries are loaded by their paths",
    Fixed.OUTSIDE: "it is outside of the repository",
}


def cause_text(cause: Cause) -> str:
    """``caused by transformers 5.22.0 -> 5.23.0 alone``."""
    named = listed(map(release_text, cause.changes))
    if cause.how == How.ALONE:
        return f"caused by {named}" + (", each alone" if len(cause.changes) > 1 else " alone")
    if cause.how == How.TOGETHER:
        return f"caused by {named} together: {'neither' if len(cause.changes) == 2 else 'none'} does it alone"
    if cause.how == How.NEEDED:
        unknown = listed(map(release_text, cause.unknown))
        return f"needs {named}; it is not known whether {unknown} causes it alone"
    if cause.how == How.UNKNOWN:
        return f"it is not known which of {named} caused it"
    return f"caused by {named}"


def trial_texts(trial: TrialReport | None, titles: Mapping[str, str]) -> list[str]:
    """What a trial did and found, a sentence each. ``titles`` are the metrics' by name."""
    if trial is None:
        return []
    said: list[str] = []
    if trial.against:
        changes = listed(map(release_text if trial.whole else before_text, trial.against))
        launches = f"{show_several(trial.pairs, 'pair')} of launches" if trial.pairs else "one launch"
        seconds = "" if trial.seconds is None else f", {trial.seconds:.0f} s"
        said.append(f"against {changes}{brought_text(trial.brought)}: {launches}{seconds}")
    problems = [f"with {listed(map(release_text, one.kept))}: {_problem(one)}" for one in trial.problems if one.kept]
    blamed = [_of_metrics(cause, trial.causes, titles) for cause in trial.causes]
    if blamed:
        said.append("; ".join(blamed) + (f" ({'; '.join(problems)})" if problems else ""))
    said += [f"the trial could not run: {_problem(one)}" for one in trial.problems if not one.kept]
    if trial.unfinished:
        more = "" if trial.more_seconds is None else f"; about {show_rough(trial.more_seconds)} more would decide it"
        said.append(f"not decided: {trial.unfinished}{more}")
    if trial.unmoved:
        other = "a change that was not tried, " if trial.fixed else ""
        said.append(
            f"{listed(titles.get(name, name) for name in trial.unmoved)}: the same in the baseline's environment here, "
            f"so the cause is {other}the machine or something that the baseline does not record"
        )
    if trial.own_code:
        own = release_text(trial.own_code)
        said.append(f"not tried: {own}: compare its revisions with perfsuite ab --a git:REV --b here")
    elif not (trial.against or trial.problems or trial.fixed):
        said.append("not tried: nothing that a trial can revert has changed since the baseline")
    said += [
        f"not tried: {release_text(one)} cannot be reverted here: {_FIXED[one.fixed].format(one.obstacle)}"
        for one in trial.fixed
        if one.fixed
    ]
    return said


def brought_text(brought: Sequence[Change], unmet: Sequence[tuple[str, str]] = ()) -> str:
    """``(brings numpy 1.26.4; pandas needs numpy>=2)``: what releases move that were asked for, and what they break."""
    moved = [f"brings {', '.join(map(before_text, brought))}"] if brought else []
    parts = [*moved, *(f"{package} needs {requirement}" for package, requirement in unmet)]
    return f" ({'; '.join(parts)})" if parts else ""


_ENDED = {"oom": "ran out of memory", "unsupported": "cannot run it"}


def _problem(problem: Problem) -> str:
    """``A failed: Rank 1 was killed by SIGKILL.``."""
    sides = [f"{side} {_ENDED.get(outcome, outcome)}" for side, outcome in problem.ended.items()]
    return f"{listed(sides)}: {problem.message}" if sides else problem.message


def _of_metrics(cause: Cause, causes: Sequence[Cause], titles: Mapping[str, str]) -> str:
    """The cause, with its metrics if there are several causes."""
    if len(causes) == 1:
        return cause_text(cause)
    return f"{listed(titles.get(name, name) for name in cause.metrics)}: {cause_text(cause)}"


def titles_of(verdict: Verdict) -> dict[str, str]:
    """The titles of its metrics by name."""
    return {line.metric: line.title for line in verdict.lines}


def trial_of(verdict: Verdict) -> list[str]:
    """The sentences of its trial."""
    return trial_texts(verdict.trial, titles_of(verdict))


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
    sides = " → ".join(sides_text(line))
    said = f"{line.title} {sides}" if line.change is None else f"{line.title} {change_text(line)} ({sides})"
    said = leak_text([line]) or said
    if line.unit == FACTS and line.moves:
        said = f"{line.title}: {some([fact_text(move.part, move.by) for move in line.moves], MOST_FACTS)}"
    return ", ".join([said + at_text([line]), *origin_texts(line.reason)])


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
