"""The table at the end of a run: one row per cell, its outcome, and every metric that is a column.

A number is never broken over two lines, even in a narrow terminal: first the changes and the parts of an id move to
their own lines, then every metric.
"""

import functools
import io
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.capacity import headroom_of
from perfsuite.gate.judge import NOT_HELD
from perfsuite.gate.machines import why_other_machine
from perfsuite.gate.timing import NO_TIMES
from perfsuite.records.measurement import EMULATED
from perfsuite.records.result import Result
from perfsuite.report.tables import width_of
from perfsuite.units import show_bytes, show_change

ABSENT = "–"
HEADROOM = "headroom"
DETECTS = "detects slow-down"
COLORS = {
    "regressed": "red",
    "failed": "red",
    "ok": "green",
    "improved": "cyan",
    "unsupported": "dim",
}  # any other that is not red: yellow


def rows(results: Sequence[Result], metrics: Iterable[Metric]) -> list[list[str]]:
    """The head and one row per result: cell, status, then each column as ``value (change since the baseline)``.

    A column that no cell of the run has is left out. The last columns are what is left of the capacity, if any,
    and the smallest slow-down that the cell's baseline can detect.
    """
    measured = {name for result in results for name in result.measurement.readings}
    columns = [metric for metric in _columns(metrics) if metric.name in measured]
    body = []
    for result in results:
        body.append([result.measurement.cell, status(result), *(_entry(result, metric) for metric in columns)])
    head = ["cell", "status", *(metric.title for metric in columns)]
    for title, tell in ((HEADROOM, _headroom), (DETECTS, _detects)):
        told = [tell(result) for result in results]
        if any(text != ABSENT for text in told):
            head, body = [*head, title], [[*row, text] for row, text in zip(body, told, strict=True)]
    return [head, *body]


def status(result: Result) -> str:
    """``regressed``; ``oom, ok`` if the outcome is not the usual one; ``new``, ``improved, accepted`` if updated."""
    outcome, verdict = result.measurement.outcome, str(result.verdict.status)
    if result.measurement.machine.emulated:
        verdict = f"{EMULATED}{verdict}"
    if result.updated:
        verdict = f"{verdict}, accepted" if result.baseline else "new"
    return verdict if outcome in ("fits", verdict) else f"{outcome}, {verdict}"


def line(result: Result, metrics: Iterable[Metric]) -> str:
    """One cell on one line, for a log that has no table yet."""
    if not result.measurement.readings:
        return " ".join(result.verdict.headline.split())
    entries = [
        f"{metric.title} {_entry(result, metric)}"
        for metric in _columns(metrics)
        if metric.name in result.measurement.readings
    ]
    return "  ".join([result.measurement.cell, status(result), *entries])


def summary_table(results: Sequence[Result], metrics: Iterable[Metric], width: int = 120) -> Table:
    """The table in the first layout that fits into ``width`` columns, or else in the narrowest."""
    body = rows(results, metrics)
    tables = (_table(layout(body), results) for layout in LAYOUTS)
    for table in tables:
        if width_of(table) <= width:
            break
    return table


def render_summary(results: Sequence[Result], metrics: Iterable[Metric], width: int) -> str:
    """The table as plain text, without colors. Wider than ``width`` only if a single number is."""
    return text_of(summary_table(results, metrics, width), width)


def text_of(table: Table, width: int) -> str:
    """A table as plain text, without colors and without blanks at line ends; at least ``width`` columns are used."""
    console = _console(max(width, width_of(table)))
    console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(text.rstrip() for text in printed.splitlines()).strip("\n")


def asides(results: Sequence[Result]) -> list[str]:
    """Notes for the whole run: why times are not compared, and how many cells are open."""
    told: Counter[str] = Counter()
    for result in results:
        told.update(
            {line.note for line in result.verdict.lines if line.status == NOT_HELD and line.note.startswith(NO_TIMES)}
        )
    lines = [f"times are not compared in {_cells(count)}: {why}" for why, count in told.items()]
    for status, meaning in OPEN_MEANS.items():
        if count := sum(result.verdict.status == status for result in results):
            lines.append(f"{status}: {_cells(count)} {meaning}")
    return lines


OPEN_MEANS = {
    "alarm": "may be slower and had no trial (--perf-trial)",
    "undecided": "may be slower, and no trial could decide it: a quieter machine may",
    "machine": "slower than in the baseline's runs, but only the machine differs",
}


def _cells(count: int) -> str:
    return f"{count} cell{'s' if count > 1 else ''}"


def _columns(metrics: Iterable[Metric]) -> list[Metric]:
    placed = [metric for metric in metrics if metric.column is not None]
    return sorted(placed, key=lambda metric: metric.column or 0)


def _entry(result: Result, metric: Metric) -> str:
    """A value, and its change if the two machines are comparable: only deterministic metrics always are."""
    new = result.measurement.readings.get(metric.name)
    if new is None:
        return ABSENT
    old = result.baseline.measurement if result.baseline else None
    before = old.readings.get(metric.name) if old else None
    if old is None or before is None:
        return metric.show(new.value)
    if metric.hold not in ("exact", "close") and why_other_machine(old.machine, result.measurement.machine):
        return metric.show(new.value)
    change = "=" if new.value == before.value else show_change(before.value, new.value)
    return f"{metric.show(new.value)} ({change})"


def _detects(result: Result) -> str:
    """``+12.3 %``, from the first compared time."""
    return next((f"+{line.detects}" for line in result.verdict.lines if line.detects), ABSENT)


def _headroom(result: Result) -> str:
    """``2.94 GiB``; ``-1.06 GiB`` if at least that much was missing."""
    left = headroom_of(result.measurement)
    return ABSENT if left is None else f"{'-' if left < 0 else ''}{show_bytes(abs(left))}"


def _broken_ids(body: list[list[str]]) -> list[list[str]]:
    """Ids are broken after their dashes, the status is below the id, and each change below its value."""
    (_, _, *titles), *cells = body
    below = [
        [f"{_broken(cell)}\n  {state}", *(entry.replace(" (", "\n(") for entry in entries)]
        for cell, state, *entries in cells
    ]
    return [["cell", *titles], *below]


def _stacked(body: list[list[str]], broken: bool = False) -> list[list[str]]:
    """One column: a cell with its status, then a line per metric; ``broken``: as narrow as possible."""
    (_, _, *titles), *cells = body
    gap, stacked = "\n    " if broken else "  ", []
    for cell, state, *entries in cells:
        name = [_broken(cell), *state.split(" ")] if broken else [cell, state]
        told = [f"  {title}{gap}{entry}" for title, entry in zip(titles, entries, strict=True) if entry != ABSENT]
        stacked.append(["\n".join(["\n  ".join(name), *told])])
    return [["cell"], *stacked]


def _broken(cell: str) -> str:
    return cell.replace("-", "-\n")


LAYOUTS = (list, _broken_ids, _stacked, functools.partial(_stacked, broken=True))  # from wide to narrow


def _table(body: list[list[str]], results: Sequence[Result]) -> Table:
    head, *cells = body
    status_column = 1 if "status" in head else 0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, title in enumerate(head):
        table.add_column(Text(title), justify="left" if index <= status_column else "right", no_wrap=True)
    for entries, result in zip(cells, results, strict=True):
        verdict = result.verdict.status
        texts = [Text(entry) for entry in entries]
        texts[status_column].stylize(COLORS.get(verdict, "yellow"))
        table.add_row(*texts)
    return table


def _console(width: int) -> Console:
    """Independent of the terminal: the same text in CI, in a file and under xdist."""
    return Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        legacy_windows=False,
    )
