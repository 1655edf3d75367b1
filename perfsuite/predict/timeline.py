"""Live memory over one step, and the needs of several cells, by category, in HTML files that need no network."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.rank.anatomy import CATEGORIES
from perfsuite.records.codec import write_bytes
from perfsuite.records.prediction import Prediction
from perfsuite.units import show_bytes

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
BEYOND = {"allocator": ("allocator", "silver"), "overhead": ("context, workspaces, NCCL", "gainsboro")}  # no tensors


def draw(prediction: Prediction, path: Path) -> None:
    """Write the page of one cell's step. Raises UsageError if plotly is not installed."""
    objects = _plotly("--timeline")
    figure = objects.Figure()
    points = [*prediction.curve, prediction.curve[-1]]  # a point extends to the next one, and the last may be the peak
    totals = [sum(sizes) for _, sizes in points]
    unit, scale = _unit(max(totals))
    for number, name in enumerate(prediction.categories):
        heights = [sizes[number] / scale for _, sizes in points]
        if any(heights):
            figure.add_trace(
                objects.Scatter(
                    y=heights,
                    name=name.replace("_", " "),
                    stackgroup="live",
                    mode="none",
                    fillcolor=_color(name),
                    line={"shape": "hv"},
                )
            )
    peak = max(range(len(totals)), key=totals.__getitem__)
    figure.add_annotation(
        x=peak, y=totals[peak] / scale, text=f"peak {show_bytes(totals[peak])}", ay=-30, bgcolor="white"
    )
    place = 0
    for phase, some in itertools.groupby(prediction.curve, key=lambda point: point[0]):
        width = len(list(some))
        figure.add_vline(x=place, line_dash="dot", line_color="gray")
        if width * 40 >= len(totals):  # or there is no room for its name
            figure.add_annotation(
                x=place + width / 2, y=1.0, yref="paper", yanchor="bottom", text=phase, showarrow=False
            )
        place += width
    _capacity(figure, prediction.capacity_bytes, max(totals), scale)
    title = f"{prediction.cell}: predicted live tensors over a step, rank {prediction.rank}"
    _save(figure, path, title, unit, "allocations and releases, in order")


def draw_sweep(title: str, names: Sequence[str], predictions: Sequence[Prediction], path: Path) -> None:
    """Write the page of a sweep: each cell's needs, stacked. Raises UsageError if plotly is not installed."""
    objects = _plotly("--plot")
    pairs = [(name, one) for name, one in zip(names, predictions, strict=True) if one.outcome != "unsupported"]
    if not pairs:
        raise UsageError("--plot has nothing to draw: none of the cells can be predicted.")
    shown = [one for _, one in pairs]
    most = max(one.needed_bytes for one in shown)
    unit, scale = _unit(most)
    parts: dict[str, list[int]] = {name: [one.parts.get(name, 0) for one in shown] for name in CATEGORIES}
    parts["allocator"] = [max(0, one.smallest_bytes - one.peak_bytes) for one in shown]
    parts["overhead"] = [sum(one.overhead.values()) for one in shown]
    figure = objects.Figure()
    for name, sizes in parts.items():
        if any(sizes):
            label = BEYOND[name][0] if name in BEYOND else name.replace("_", " ")
            heights = [size / scale for size in sizes]
            figure.add_trace(
                objects.Bar(x=[name for name, _ in pairs], y=heights, name=label, marker_color=_color(name))
            )
    for name, one in pairs:
        figure.add_annotation(
            x=name, y=one.needed_bytes / scale, text=show_bytes(one.needed_bytes), ay=-15, showarrow=False, yshift=10
        )
    figure.update_layout(barmode="stack")
    _capacity(figure, shown[0].capacity_bytes, most, scale)
    _save(figure, path, f"{title}: predicted, not measured", unit, "")


def _plotly(option: str) -> Any:
    if importlib.util.find_spec("plotly") is None:
        raise UsageError(f"{option} needs plotly: pip install 'perfsuite[report]'.")
    from plotly import graph_objects

    return graph_objects


def _unit(most: int) -> tuple[str, int]:
    """The largest unit of which there is at least one."""
    return next(((name, size) for name, size in reversed(UNITS.items()) if most >= size), ("KiB", UNITS["KiB"]))


def _color(name: str) -> str:
    if name in BEYOND:
        return BEYOND[name][1]
    from plotly.express.colors import qualitative

    color: str = qualitative.Safe[CATEGORIES.index(name)]
    return color


def _capacity(figure: Any, capacity_bytes: int | None, most: int, scale: int) -> None:
    """A line at the device's capacity; a sentence if the memory is a small part of it, since nothing could be seen."""
    if not capacity_bytes:
        return
    text = f"capacity {show_bytes(capacity_bytes)}"
    if most * 4 >= capacity_bytes:
        figure.add_hline(y=capacity_bytes / scale, line_color="red", annotation_text=text)
    else:
        share = f"{text}: {100 * most / capacity_bytes:.2g} % is used at most"
        figure.add_annotation(x=1, y=-0.12, xref="paper", yref="paper", text=share, showarrow=False)


def _save(figure: Any, path: Path, title: str, unit: str, below: str) -> None:
    figure.update_layout(title=title, template="plotly_white", yaxis_title=unit, xaxis_title=below)
    write_bytes(path, figure.to_html(include_plotlyjs="inline").encode())
