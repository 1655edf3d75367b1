"""Several launches of one cell as one measurement: times vary from launch to launch, more than from step to step."""

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.compare.gather import derived
from perfsuite.compare.rules import rule_of
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading


def merge(measurements: Sequence[Measurement], metrics: Iterable[Metric]) -> Measurement:
    """One measurement of all launches: times pooled, derived metrics computed again, the rest from the first launch.

    A launch that did not fit is the result. An exact metric that differs between launches makes the result a failure
    that names it: nothing can be compared with a number that does not repeat itself.
    """
    first, metrics = measurements[0], list(metrics)
    for measurement in measurements:
        if measurement.outcome != "fits":
            return measurement
    wall_seconds = sum(measurement.wall_seconds for measurement in measurements)
    launches = [launch for one in measurements for launch in one.launches]
    for number, one in enumerate(measurements[1:], 2):
        problem = _differs(first, one, metrics, number)
        if problem:
            failure = Failure(kind="result", rank=None, message=problem, versions=first.versions)
            return msgspec.structs.replace(
                first, outcome="failed", readings={}, failure=failure, launches=launches, wall_seconds=wall_seconds
            )
    readings = dict(first.readings)
    for metric in metrics:
        if metric.name not in readings:
            continue
        if metric.is_time:
            readings[metric.name] = _pool([measurement.readings[metric.name] for measurement in measurements])
        elif metric.hold == "shown" and metric.name.endswith("_seconds"):  # the phases of a step
            values = [
                measurement.readings[metric.name].value
                for measurement in measurements
                if metric.name in measurement.readings
            ]
            readings[metric.name] = msgspec.structs.replace(readings[metric.name], value=statistics.median(values))
    for metric in metrics:
        if metric.derive is not None and metric.name in readings:
            made = derived(metric, readings, first.world_size)
            if made is not None:
                readings[metric.name] = made
    return msgspec.structs.replace(first, readings=readings, launches=launches, wall_seconds=wall_seconds)


def _differs(first: Measurement, other: Measurement, metrics: Iterable[Metric], number: int) -> str:
    """The first number that should repeat itself and did not in launch ``number``, as an error; empty if all did."""
    for metric in metrics:
        old, new = first.readings.get(metric.name), other.readings.get(metric.name)
        if (old is None) != (new is None):
            return f"{metric.title} was measured in launch {number} or in the first, but not in both."
        if old and new and rule_of(metric).differs(metric, old, new, CellId.split(first.cell).strategy):
            values = f"{metric.show(old.value)} ({old.value:,}) in the first launch and {metric.show(new.value)}"
            return (
                f"{metric.title} is {values} ({new.value:,}) in launch {number}. It does not repeat itself, so it "
                "cannot be compared."
            )
    return ""


def _pool(readings: Sequence[Reading]) -> Reading:
    samples = [sample for reading in readings for sample in reading.samples]
    value = statistics.median(sample for sample in samples if sample is not None)
    return msgspec.structs.replace(readings[0], value=value, samples=samples)
