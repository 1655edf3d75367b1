"""The page of a study: its answers, then bars of memory and step time, and its tables."""

import statistics
from collections.abc import Mapping, Sequence

from perfsuite.catalog.definitions import Metric, Study
from perfsuite.features.studies._study_rows import Length, Results, StudyRow
from perfsuite.features.studies._table import study_table
from perfsuite.show.html.axes import Quantity
from perfsuite.show.html.charts import Bar, bars
from perfsuite.show.html.document import Document, Section, Table
from perfsuite.show.html.markup import Html

DRAWN = ("peak_memory_bytes", "step_time_seconds")


def study_page(
    study: Study, by_model: Mapping[str, Results], metrics: Sequence[Metric], length: Length, answers: Sequence[str]
) -> Document:
    """The page of what was measured."""
    sections = []
    for model, results in by_model.items():
        table, notes = study_table(results, metrics, length)
        charts = [_bars(results, metric) for metric in metrics if metric.name in DRAWN]
        sections.append(
            Section(heading=model, charts=charts, tables=[Table.of(table)], sentences=notes, kind="measured")
        )
    return Document(
        title=study.name,
        verdict=" ".join(answers) or "The study has no answer.",
        facts=[study.question, f"Asked by {study.asked}"],
        sections=sections,
    )


def _bars(results: Results, metric: Metric) -> Html:
    """A bar per cell, in a colour per row if there are columns."""
    single = len(results.columns) == 1
    shown = []
    for row in results.rows:
        value = row.value(metric.name)
        down, up = _quartiles(row, metric)
        known = value is not None and up > down
        shown.append(
            Bar(
                label=row.row if single else f"{row.row}, {row.column}",
                value=value,
                low=down if known else None,
                high=up if known else None,
                text=row.outcome if value is None else metric.show(value),
                color=0 if single else results.row_names.index(row.row),
            )
        )
    title = f"{metric.title[0].upper()}{metric.title[1:]}"
    if metric.name == "step_time_seconds":
        title += ", and its quartiles"
    return bars(title, shown, Quantity.of(metric), [] if single else results.row_names)


def _quartiles(row: StudyRow, metric: Metric) -> tuple[float, float]:
    """The lower and the upper quartile of the steps; equal if there are none."""
    samples = [step for steps in row.rounds for step in steps]
    if len(samples) < 2 or metric.name != "step_time_seconds":
        return 0, 0
    low, _, high = statistics.quantiles(samples, n=4)
    return low, high
