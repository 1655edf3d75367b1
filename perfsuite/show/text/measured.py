"""One measurement by itself, without a baseline: what ``perfsuite run`` prints."""

from collections.abc import Iterable, Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import part_name
from perfsuite.system.units import FACTS, show

MOST_SUSPECTS = 5  # of a metric
MOST_SAMPLES = 8  # of a row of numbers
DETAILED = (
    "peak_memory_bytes", "operators", "python_calls", "unknown_operators", "communication_bytes", "leaked_objects",
    "cached_objects", "kept_tensor_bytes", "kept_host_bytes", "kept_files", "kept_objects", "straggler_share",
    "checkpoint_bytes",
)  # fmt: skip
SERIES = ("loss", "gradient_norm")  # metrics whose every step is shown


def render_measured(measurement: Measurement, metrics: Iterable[Metric]) -> str:
    """The numbers, the parts of the largest, the loss of every step, and what was really active."""
    metrics = list(metrics)
    titles = {metric.name: metric.title for metric in metrics}
    known = in_order(measurement, metrics)
    wide = max((len(metric.title) for metric in known.values()), default=0)
    lines = []
    for name, metric in known.items():
        if metric.unit == FACTS:  # they are all listed at the end
            continue
        reading = measurement.readings[name]
        other = measurement.unrepeated.get(name)
        note = "" if other is None else f"   (another launch had {metric.show(other)})"
        lines.append(f"  {metric.title:{wide}}  {metric.show(reading.value):>14}{note}")
        lines += _details(reading, metric) if name in DETAILED else []
        lines += [f"      {phase}: {metric.show(seconds)}" for phase, seconds in reading.phases.items()]
        lines += _series(reading, metric) if name in SERIES else []
    lines += [f"not counted: {titles.get(name, name)}: {why}" for name, why in measurement.uncounted.items()]
    return "\n".join([*lines, f"active: {_pairs(measurement.engine)}"])


def in_order(measurement: Measurement, metrics: Iterable[Metric]) -> dict[str, Metric]:
    """The metrics that were measured, by name: those of the summary's columns come first."""
    there = [metric for metric in metrics if metric.name in measurement.readings]
    return {metric.name: metric for metric in sorted(there, key=lambda metric: metric.column or len(there))}


def _details(reading: Reading, metric: Metric) -> list[str]:
    """The parts, and the largest of what they consist of."""
    parts = {part_name(part): size for part, size in reading.parts.items()}
    named = [f"      {part}: {metric.show(size)}" for part, size in largest(parts, len(parts))]
    return named + [f"        {metric.show(size)} {name}" for name, size in largest(reading.suspects, MOST_SUSPECTS)]


def _series(reading: Reading, metric: Metric) -> list[str]:
    known = [sample for sample in reading.samples if sample is not None]
    shown = [show(sample, metric.unit) for sample in known[:MOST_SAMPLES]]
    more = f" … {show(known[-1], metric.unit)}" if len(known) > MOST_SAMPLES else ""
    return [f"      step by step: {' '.join(shown)}{more}"] if known else []


def largest(sizes: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """The largest first."""
    return sorted(sizes.items(), key=lambda item: -item[1])[:most]


def _pairs(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {fact}" for name, fact in facts.items())
