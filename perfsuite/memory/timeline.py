"""Live memory over one step, by category, in an HTML file that needs no network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.records import Prediction, write_bytes
from perfsuite.units import show_bytes

GIB = 2**30


def draw(prediction: Prediction, path: Path) -> None:
    """Write the page. Raises UsageError where plotly is not installed."""
    if importlib.util.find_spec("plotly") is None:
        raise UsageError("--timeline needs plotly: pip install 'perfsuite[report]'.")
    from plotly.express.colors import qualitative
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    places = list(range(len(prediction.curve)))
    for number, name in enumerate(prediction.categories):
        heights = [sizes[number] / GIB for _, sizes in prediction.curve]
        if any(heights):
            color = qualitative.Safe[number % len(qualitative.Safe)]
            label = name.replace("_", " ")
            figure.add_trace(Scatter(x=places, y=heights, name=label, stackgroup="live", mode="none", fillcolor=color))
    totals = [sum(sizes) for _, sizes in prediction.curve]
    peak = max(range(len(totals)), key=totals.__getitem__)
    figure.add_annotation(x=peak, y=totals[peak] / GIB, text=f"peak {show_bytes(totals[peak])}", showarrow=True)
    before = ""
    for place, (phase, _) in zip(places, prediction.curve, strict=True):
        if phase != before:
            figure.add_vline(x=place, line_dash="dot", annotation_text=phase, annotation_position="bottom right")
            before = phase
    if prediction.capacity_bytes:
        figure.add_hline(y=prediction.capacity_bytes / GIB, line_color="red", annotation_text="capacity")
    figure.update_layout(
        title=f"{prediction.cell}: predicted live tensors over a step, rank {prediction.rank}",
        template="plotly_white",
        yaxis_title="GiB",
        xaxis_title="allocations and releases, in order",
    )
    write_bytes(path, figure.to_html(include_plotlyjs="inline").encode())
