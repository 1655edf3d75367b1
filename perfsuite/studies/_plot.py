"""The picture of a study: grouped bars of memory and step time, in an HTML file that needs no network."""

import html
import importlib.util
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric, Study
from perfsuite.records.codec import write_bytes
from perfsuite.studies._rows import Results, Row

MISSING = "No plot, since plotly is not installed: pip install 'perfsuite[report]'"
LIBRARY = "plotly.min.js"


def can_plot() -> bool:
    """Whether plotly is installed."""
    return importlib.util.find_spec("plotly") is not None


def plot(path: Path, study: Study, by_model: dict[str, Results], metrics: Sequence[Metric], answers: list[str]) -> None:
    """Write the picture to ``path``, and plotly's script next to it."""
    from plotly.offline import get_plotlyjs
    from plotly.subplots import make_subplots

    panels = [(model, metric) for model in by_model for metric in metrics]
    titles = [f"{metric.title}, {model}" for model, metric in panels]
    figure = make_subplots(rows=len(by_model), cols=len(metrics), subplot_titles=titles)
    for number, (model, metric) in enumerate(panels):
        place = {"row": number // len(metrics) + 1, "col": number % len(metrics) + 1}
        for bars in _bars(by_model[model], metric, legend=number == 0):
            figure.add_trace(bars, **place)
        figure.update_yaxes(**_ticks(by_model[model], metric), **place)
    figure.update_layout(title=study.name, barmode="group", template="plotly_white", height=130 + 430 * len(by_model))
    page = figure.to_html(include_plotlyjs="directory")
    sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in answers)
    words = f"<p>{html.escape(study.question)}</p><ul>{sentences}</ul>"
    page = page.replace("</body>", f'<div style="font: 15px sans-serif; margin: 2em">{words}</div></body>')
    write_bytes(path.parent / LIBRARY, get_plotlyjs().encode())
    write_bytes(path, page.encode())


def _bars(results: Results, metric: Metric, legend: bool) -> Iterable[Any]:
    """A colour per row if there are columns, or else one colour for all rows."""
    from plotly.express.colors import qualitative
    from plotly.graph_objects import Bar

    groups = [(name, [row for row in results.rows if row.row == name]) for name in results.row_names]
    single = len(results.columns) == 1
    if single:
        groups = [(metric.title, list(results.rows))]
    for number, (name, rows) in enumerate(groups):
        spreads = [_quartiles(row, metric) for row in rows]
        yield Bar(
            name=name,
            x=[row.row if single else row.column for row in rows],
            y=[row.value(metric.name) or 0 for row in rows],
            text=[_label(row, metric) for row in rows],
            textposition=["inside" if any(spread) else "outside" for spread in spreads],  # clear of the error bar
            insidetextanchor="start",
            cliponaxis=False,
            marker_color=qualitative.Safe[number % len(qualitative.Safe)],
            error_y={
                "type": "data",
                "array": [up for up, _ in spreads],
                "arrayminus": [down for _, down in spreads],
                "visible": any(map(any, spreads)),
            },
            legendgroup=name,
            showlegend=legend and not single,
        )


def _label(row: Row, metric: Metric) -> str:
    """The number, or why there is none."""
    value = row.value(metric.name)
    return row.outcome if value is None else metric.show(value)


def _quartiles(row: Row, metric: Metric) -> tuple[float, float]:
    """The distance from the median to the quartiles."""
    samples = [step for steps in row.rounds for step in steps]
    if len(samples) < 2 or metric.name != "step_time_seconds":
        return 0, 0
    low, middle, high = statistics.quantiles(samples, n=4)
    return high - middle, middle - low


def _ticks(results: Results, metric: Metric) -> dict[str, Any]:
    """An axis from zero to above the largest value and its spread, in the metric's own units."""
    tops = [(row.value(metric.name) or 0) + _quartiles(row, metric)[0] for row in results.rows]
    top = 1.1 * max(tops, default=0) or 1
    places = [top * part / 5 for part in range(6)]
    return {"range": [0, top], "tickvals": places, "ticktext": [metric.show(place) for place in places]}
