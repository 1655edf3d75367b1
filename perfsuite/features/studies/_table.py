"""The table of a study: a row per cell, every number next to its ratio to the reference, reasons below."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from perfsuite.catalog.definitions import Metric
from perfsuite.features.studies._study_rows import Length, Results, StudyRow, Training, ratio, time_to_train
from perfsuite.show.text.tables import bare_table
from perfsuite.system.units import show_duration

ABSENT = "–"
COLORS = {"fits": "", "failed": "red", "oom": "yellow", "unsupported": "dim", "refused": "dim"}


def study_table(results: Results, metrics: Sequence[Metric], length: Length, gap: str = " ") -> tuple[Table, list[str]]:
    """The table and its notes: why rows have no numbers. ``gap`` separates a number from its ratio: a line break if
    there is little room.
    """
    notes: dict[str, int] = {}
    with_columns = any(row.column for row in results.rows)
    published = list(dict.fromkeys(name for row in results.rows for name in row.note))
    table = bare_table()
    table.add_column("")
    if with_columns:
        table.add_column("")
    for metric in metrics:
        table.add_column(Text(metric.title), justify="right", no_wrap=True)
    table.add_column(f"time of{gap}{length}", justify="right", no_wrap=True)
    for name in published:
        table.add_column(f"the note{gap}says: {name}", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for row in results.rows:
        numbers = [_entry(results, row, metric, gap) for metric in metrics]
        training = time_to_train(row.measurement, row.rounds, length) if row.measurement else None
        mark = f" [{notes.setdefault(row.reason, len(notes) + 1)}]" if row.reason else ""
        name = f"{row.row} (reference)" if _is_reference(results, row) else row.row
        table.add_row(
            Text(name),
            *([Text(row.column)] if with_columns else []),
            *numbers,
            show_training(training),
            *(row.note.get(name, ABSENT) for name in published),
            Text(row.outcome + mark, COLORS.get(row.outcome, "")),
        )
    return table, [f"[{number}] {' '.join(reason.split())}" for reason, number in notes.items()]


def show_training(training: Training | None) -> str:
    """``36.6 ± 1.2 s``."""
    return ABSENT if training is None else show_duration(training.seconds, training.uncertainty_seconds)


def _is_reference(results: Results, row: StudyRow) -> bool:
    named = results.study.reference or results.study.reference_column
    return bool(named) and results.reference(row) is row


def _entry(results: Results, row: StudyRow, metric: Metric, gap: str) -> str:
    value = row.value(metric.name)
    if value is None:
        return ABSENT
    times = ratio(row, results.reference(row), metric.name)
    same = (
        times is None or _is_reference(results, row) or not (results.study.reference + results.study.reference_column)
    )
    return metric.show(value) + ("" if same or times is None else f"{gap}{times.value:.2f}×")
