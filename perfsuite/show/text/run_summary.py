"""The tables at the end of a run: one row per cell, its outcome, and every metric that is a column.

A number is never broken over two lines, even in a narrow terminal. First the columns that follow from others are left
out; then the changes and the parts of an id move to their own lines, then every metric.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.capacity import headroom_of
from perfsuite.compare.hurts import worst_of
from perfsuite.compare.machines import why_other_machine
from perfsuite.compare.pool import changed_since, runs_of
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.reasons import NoTimes, OtherMachine
from perfsuite.records.result import Result
from perfsuite.records.verdict import RED, Line, Status
from perfsuite.show.text.grid_words import moved_together
from perfsuite.show.text.line_words import note_text, tried_text
from perfsuite.show.text.open_cells import open_counts
from perfsuite.show.text.tables import GAP, Body, fitted, headed, text_of, without
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.show.text.verdict_words import summary, worst_text
from perfsuite.system.machine import EMULATED
from perfsuite.system.units import show_bytes, show_change, show_ratio, show_several, some

ABSENT = "–"
HEADROOM = "headroom"
DETECTS = "detects slow-down"
WIDTH = 100  # columns; nothing of a summary is wider, in a log or on a wide terminal
LEAST = 20  # columns for the reason why a cell has no measurement
MOST_PARTS = 6  # of the machine that are named
KEPT = 4  # the first columns: cell, status, and two metrics that no other column follows from
COLORS = {"ok": "green", "immaterial": "green", "improved": "cyan", "unsupported": "dim"}  # any other: by RED


def rows(results: Sequence[Result], metrics: Iterable[Metric]) -> Body:
    """The head and one row per result: cell, status, then each column as ``value (change since the baseline)``.

    A column that no cell of the run has is left out. The last columns are what is left of the capacity, if any,
    and the smallest slow-down that the cell's baseline can detect.
    """
    measured = {name for result in results for name in result.measurement.readings}
    columns = [metric for metric in _columns(metrics) if metric.name in measured]
    body = []
    for result in results:
        state = _with_worst(result, columns)
        body.append([result.measurement.cell, state, *(_entry(result, metric) for metric in columns)])
    head = ["cell", "status", *(metric.title for metric in columns)]
    for title, tell in ((HEADROOM, _headroom), (DETECTS, _detects)):
        column = [tell(result) for result in results]
        if any(text != ABSENT for text in column):
            head, body = [*head, title], [[*row, text] for row, text in zip(body, column, strict=True)]
    return [head, *body]


def status(result: Result) -> str:
    """``regressed``; ``oom, ok`` if the outcome is not the usual one; ``new``, ``improved, accepted`` if updated."""
    outcome, verdict = result.measurement.outcome, str(result.verdict.status)
    if result.measurement.machine.emulated:
        verdict = f"{EMULATED}{verdict}"
    if result.updated:
        verdict = f"{verdict}, accepted" if result.baseline else "new"
    elif result.quarantined:
        verdict = f"{verdict}, quarantined"
    return verdict if outcome in ("fits", verdict) else f"{outcome}, {verdict}"


def _with_worst(result: Result, columns: Sequence[Metric]) -> str:
    """The status with what hurts most, if no column shows it: ``regressed: memory grown/step``."""
    worst = worst_of(result.verdict)
    is_shown = worst is None or worst.metric in {metric.name for metric in columns}
    return status(result) if is_shown or worst is None else f"{status(result)}: {worst.title}"


def line(result: Result, metrics: Iterable[Metric], width: int = WIDTH) -> str:
    """One cell on one line, for a log without a table yet: what hurts most, or the columns that fit into ``width``."""
    start = f"{result.measurement.cell}  {status(result)}"
    if not result.measurement.readings:
        room = width - len(start) - len(GAP)
        why = textwrap.shorten(reason(result), room, placeholder=" …") if room >= LEAST else ""
        return f"{start}{GAP}{why}".rstrip()
    if worst := worst_text(result.verdict):
        room = width - len(start) - len(GAP)
        return f"{start}{GAP}{textwrap.shorten(worst, room, placeholder=' …')}" if room >= LEAST else start
    text = start
    for title, entry in entries(result, metrics).items():
        longer = f"{text}{GAP}{title} {entry}"
        if len(longer) > width:
            break
        text = longer
    return text


def entries(result: Result, metrics: Iterable[Metric]) -> dict[str, str]:
    """A cell's columns by their titles, without those that it did not measure."""
    readings = result.measurement.readings
    return {metric.title: _entry(result, metric) for metric in _columns(metrics) if metric.name in readings}


def reason(result: Result) -> str:
    """Why a cell has no measurement, in one line without its name and status."""
    return " ".join(summary(result.verdict).split()).removeprefix(f"{result.verdict.status}: ")


def by_process(results: Sequence[Result], metrics: Iterable[Metric]) -> list[list[Result]]:
    """The measured cells, in groups that have the same metrics: training, inference, messages, rows."""
    processes = {metric.name: frozenset(metric.processes) for metric in metrics if metric.processes}
    groups: dict[frozenset[str], list[Result]] = {}
    for result in results:
        if result.measurement.readings:
            known = [processes[name] for name in result.measurement.readings if name in processes]
            groups.setdefault(frozenset.intersection(*known) if known else frozenset(), []).append(result)
    return list(groups.values())


def unmeasured(results: Sequence[Result], room: int = 0) -> Body:
    """The head and one row per cell that has no readings: cell, status, and why, in ``room`` columns if it is given.
    It has no column of any metric.
    """
    cells = [result for result in results if not result.measurement.readings]
    body = [[result.measurement.cell, status(result), reason(result)] for result in cells]
    if room and body:
        room -= sum(max(len(row[at]) for row in body) + len(GAP) for at in (0, 1))
        body = [[cell, state, textwrap.shorten(why, max(room, LEAST), placeholder=" …")] for cell, state, why in body]
    return [["cell", "status", "why"], *body]


def render_summary(results: Sequence[Result], metrics: Iterable[Metric], width: int, color: bool = False) -> str:
    """The tables as text, one for each kind of process, and one of the cells without a measurement.

    They have at most ``width`` columns, and never more than WIDTH; a table is wider only if a single number is. Columns
    that do not fit are named below. ``color`` colors each status, for a terminal.
    """
    metrics, width, left_out = list(metrics), min(width, WIDTH), dict[str, None]()
    parts = []
    for group in by_process(results, metrics):
        body = rows(group, metrics)
        fitting, gone = fitted(layouts(body), width)
        parts.append(text_of(fitting, colors_of(group) if color else ()))
        left_out |= dict.fromkeys(gone)
    if failed := [result for result in results if not result.measurement.readings]:
        body = unmeasured(failed, width)
        fitting, _ = fitted(
            [(body, ()), (short := without(body, "why"), ()), (_stacked(short, broken=True), ())], width
        )
        parts.append(text_of(fitting, colors_of(failed) if color else ()))
    if left_out:
        names = list(left_out)
        text = f"not shown in {width} columns, but in the report (--perf-report): {', '.join(names)}"
        parts.append(textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts)


def colors_of(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Each row's status and its color."""
    verdicts = [result.verdict.status for result in results]
    colors = [COLORS.get(verdict, "red" if verdict in RED else "yellow") for verdict in verdicts]
    return list(zip(map(status, results), colors, strict=True))


def asides(results: Sequence[Result], metrics: Iterable[Metric] = ()) -> list[str]:
    """Notes for the whole run: what moved together, why times are not compared, what could not be counted, and how
    many cells are open.
    """
    metrics, reasons = list(metrics), Counter[str]()
    for result in results:
        reasons.update({note_text(line) for line in result.verdict.lines if _lacks_times(line)})
    lines = moved_together(results)
    lines += [f"times are not compared in {show_several(count, 'cell')}: {why}" for why, count in reasons.items()]
    if parts := _other_parts(results, metrics):
        lines[-1] += f"; what differs here: {some(parts, MOST_PARTS)}"
    lines += _uncounted(results, {metric.name: metric.title for metric in metrics})
    unknown = Counter(operator for result in results for operator in unknown_operators(result.measurement))
    lines += [f"the FLOPs of {one} are not counted in {show_several(cells, 'cell')}" for one, cells in unknown.items()]
    lines += open_counts(results)
    for result in results:
        if result.quarantined and not result.updated:
            lines.append(f"{result.verdict.cell}: {result.verdict.status}, but quarantined until {result.quarantined}")
    return lines


def unknown_operators(measurement: Measurement) -> list[str]:
    """Operators that compute, and whose FLOPs no formula tells."""
    reading = measurement.readings.get("unknown_operators")
    return list(reading.parts) if reading else []


def _lacks_times(line: Line) -> bool:
    """Whether a time is not compared since there are none of this machine."""
    return line.status == Status.NOT_COMPARED and isinstance(line.reason, OtherMachine | NoTimes)


def _other_parts(results: Iterable[Result], metrics: Sequence[Metric]) -> list[str]:
    """The parts of the machine that differ where no times are compared, such as its Python, once for all cells."""
    parts = dict[Change, None]()
    for result in results:
        if result.baseline and any(_lacks_times(line) for line in result.verdict.lines):
            reference = runs_of(result.baseline, metrics)[-1:]
            changed = [change for run in reference for change in changed_since(run, result.measurement)]
            parts |= dict.fromkeys(change for change in changed if not change.made)
    return [text_of_change(change) for change in sorted(parts, key=lambda change: change.kind != ChangeKind.PYTHON)]


def _uncounted(results: Sequence[Result], titles: Mapping[str, str]) -> list[str]:
    """Each reason once, with what it left out and in how many cells."""
    lost: dict[str, dict[str, None]] = {}
    cells: Counter[str] = Counter()
    for result in results:
        for metric, reason in result.measurement.uncounted.items():
            lost.setdefault(reason, {})[titles.get(metric, metric)] = None
        cells.update(set(result.measurement.uncounted.values()))
    return [
        f"{', '.join(names)} cannot be counted in {show_several(cells[why], 'cell')}: {why}"
        for why, names in lost.items()
    ]


def _columns(metrics: Iterable[Metric]) -> list[Metric]:
    placed = [metric for metric in metrics if metric.column is not None]
    return sorted(placed, key=lambda metric: metric.column or 0)


def _entry(result: Result, metric: Metric) -> str:
    """A value, and its change if that can be compared: only deterministic metrics always can. What follows from the
    step time has none if that was not compared, or was in other steps, those of a trial.
    """
    new = result.measurement.readings.get(metric.name)
    if new is None:
        return ABSENT
    old = result.baseline.measurement if result.baseline else None
    before = old.readings.get(metric.name) if old else None
    if old is None or before is None:
        return metric.show(new.value)
    line = next((line for line in result.verdict.lines if line.metric == metric.name and metric.is_time), None)
    if line is not None:  # a time's status follows from its line, which several runs or a trial have made
        said = "=" if line.change == 0 else tried_text(line)
        here = line.new if isinstance(line.new, int | float) else new.value  # a trial's launches are later
        return f"{metric.show(here)} ({said})" if line.compared else metric.show(new.value)
    if metric.hold not in ("exact", "close"):
        step = next((line for line in result.verdict.lines if line.metric == STEP_TIME), None)
        uncompared = step is not None and (step.interval is not None or not step.compared)
        if uncompared or why_other_machine(old.machine, result.measurement.machine):
            return metric.show(new.value)
    change = "=" if new.value == before.value else show_change(before.value, new.value)
    return f"{metric.show(new.value)} ({change})"


def _detects(result: Result) -> str:
    """``+12.3 %``, from the first compared time."""
    found = (line.detects for line in result.verdict.lines if line.detects is not None)
    return next((f"+{show_ratio(share)}" for share in found), ABSENT)


def _headroom(result: Result) -> str:
    """``2.94 GiB``; ``-1.06 GiB`` if at least that much was missing."""
    left = headroom_of(result.measurement)
    return ABSENT if left is None else f"{'-' if left < 0 else ''}{show_bytes(abs(left))}"


def _stacked(body: Body, broken: bool = False) -> Body:
    """One column: a cell with its status, then a line per metric; ``broken``: as narrow as possible."""
    (_, _, *titles), *cells = body
    gap, stacked = "\n    " if broken else "  ", []
    for cell, state, *entries in cells:
        name = [_broken(cell), *state.split(" ")] if broken else [cell, state]
        rest = [f"  {title}{gap}{entry}" for title, entry in zip(titles, entries, strict=True) if entry != ABSENT]
        stacked.append(["\n".join(["\n  ".join(name), *rest])])
    return [["cell"], *stacked]


def _broken(cell: str) -> str:
    return cell.replace("-", "-\n")


def layouts(body: Body) -> Iterator[tuple[Body, Sequence[str]]]:
    """From wide to narrow: the table, and the titles of the columns that are left out of it."""
    derived = [title for title in reversed(body[0][KEPT:]) if title not in (DETECTS, HEADROOM)]
    narrower: list[tuple[Body, Sequence[str]]] = [(body, ())]
    for title in [*derived, *(title for title in (DETECTS, HEADROOM) if title in body[0])]:
        fewer, gone = narrower[-1]
        narrower.append((without(fewer, title), (title, *gone)))
    yield from narrower
    yield from ((headed(fewer), gone) for fewer, gone in narrower)
    yield _stacked(body), ()
    yield _stacked(body, broken=True), ()
