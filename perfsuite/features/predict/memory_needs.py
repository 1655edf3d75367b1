"""A predicted memory on a page: the live tensors over a step, and what cells need of their device."""

from collections.abc import Mapping, Sequence

from perfsuite.features.predict.prediction import Estimate, Prediction
from perfsuite.features.predict.state_bound import StateBound
from perfsuite.show.html.axes import BYTES
from perfsuite.show.html.charts import Stack, stacked_bars
from perfsuite.show.html.curve_chart import Areas, Axes
from perfsuite.show.html.markup import Html
from perfsuite.show.html.memory_chart import EVENTS, spans
from perfsuite.show.text.memory_categories import CATEGORIES

ESTIMATED, STATE = "estimated, of all categories", "the state alone"
COLORS = [*CATEGORIES, "allocator", "overhead", ESTIMATED, STATE]


def timeline(prediction: Prediction) -> Html:
    """Live memory over the last traced step, by category."""
    phases = spans([phase for phase, _ in prediction.curve])
    limit = ("capacity", prediction.capacity_bytes) if prediction.capacity_bytes else None
    title = f"Predicted live tensors over a step, rank {prediction.rank}"
    sizes = [sizes for _, sizes in prediction.curve]
    axes, names = Axes(BYTES, EVENTS), prediction.categories
    return Areas(points=sizes, names=names, axes=axes, phases=phases, limit=limit, kind="predicted").draw(title)


def needs(names: Sequence[str], predictions: Sequence[Prediction | Estimate | StateBound]) -> Html:
    """What each cell needs of its device, stacked. An estimate has no categories, and a bound is of the state alone."""
    pairs = zip(names, predictions, strict=True)
    shown = [(name, prediction) for name, prediction in pairs if prediction.outcome != "unsupported"]
    capacity = next((prediction.capacity_bytes for _, prediction in shown if prediction.capacity_bytes), None)
    stacks = [Stack(label=name, parts=parts_of(prediction), kind="predicted") for name, prediction in shown]
    limit = ("capacity", capacity) if capacity else None
    return stacked_bars("Predicted need of a device", stacks, BYTES, colors=COLORS, limit=limit)


def parts_of(prediction: Prediction | Estimate | StateBound) -> Mapping[str, int]:
    """The live tensors by category, what the allocator loses, and what lies outside of tensors."""
    if isinstance(prediction, StateBound):
        return {STATE: prediction.needed_bytes}
    if isinstance(prediction, Estimate):
        return {ESTIMATED: prediction.needed_bytes}
    lost = max(0, prediction.smallest_bytes - prediction.peak_bytes)
    return prediction.parts | {"allocator": lost, "overhead": sum(prediction.overhead.values())}
