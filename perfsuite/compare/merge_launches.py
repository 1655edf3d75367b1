"""Several launches of one cell as one measurement: times vary from launch to launch, more than from step to step."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.scripts import ENGINE as SCRIPT
from perfsuite.compare.gather import derived
from perfsuite.compare.rules import rule_of
from perfsuite.compare.rules.series import repeated
from perfsuite.records.digests import first_other
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading


def merge(measurements: Sequence[Measurement], metrics: Iterable[Metric]) -> Measurement:
    """One measurement of all launches: times pooled, derived metrics computed again, the rest from the first launch.
    Later ones may have measured times alone.

    A launch that did not fit is the result. An exact metric that differs between launches makes the result a failure
    that names it: nothing can be compared with a number that does not repeat itself. A script's may differ: its batches
    have other lengths, or its ranks race. They are then red only if they are far worse.
    """
    first, metrics = measurements[0], list(metrics)
    for measurement in measurements:
        if measurement.outcome != "fits":
            return measurement
    wall_seconds = sum(measurement.wall_seconds for measurement in measurements)
    launches = [launch for one in measurements for launch in one.launches]
    own = CellId.split(first.cell).engine == SCRIPT
    others = [found for one in measurements[1:] for found in _differing(first, one, metrics)]
    others.sort(key=lambda found: abs(found[2].value - found[1].value))  # the farthest is what the spread is known by
    unrepeated = {metric.name: new.value for metric, _, new in others}
    for number, one in enumerate(measurements[1:], 2):
        # A launch of times alone makes no checkpoint, for example, whose time is shown and never compared.
        measured = [metric for metric in metrics if metric.is_time or not one.times_only]
        problem = _absent(first, one, measured, number) or ("" if own else _differs(first, one, metrics, number))
        if problem:
            failure = Failure(kind="result", rank=None, message=problem, versions=first.versions)
            return msgspec.structs.replace(
                first, outcome="failed", readings={}, failure=failure, launches=launches, wall_seconds=wall_seconds
            )
    by_name = {metric.name: metric for metric in metrics}
    readings = dict(first.readings)
    for name in readings.keys() & by_name.keys():
        readings[name] = _merged(by_name[name], [one.readings[name] for one in measurements if name in one.readings])
    uncounted = dict(first.uncounted)
    for metric in metrics:
        if metric.derive is not None and any(metric.name in one.readings for one in measurements):
            _derive(metric, readings, uncounted, first.world_size)
    more: dict[str, Any] = {"launches": launches, "wall_seconds": wall_seconds, "unrepeated": unrepeated}
    more |= {"uncounted": uncounted}
    return msgspec.structs.replace(first, readings=readings, **more)


def _merged(metric: Metric, readings: Sequence[Reading]) -> Reading:
    """One metric's of all launches that have it."""
    if readings[0].series:
        return _repeated(metric, readings)
    if readings[0].digests:
        return _with_common_digests(readings)
    if metric.is_time:
        return _pool(readings)
    if metric.is_timed:  # the phases of a step
        value = statistics.median(reading.value for reading in readings)
        names = readings[0].phases
        phases = {name: statistics.median(one.phases.get(name, 0.0) for one in readings) for name in names}
        return msgspec.structs.replace(readings[0], value=value, phases=phases)
    return readings[0]


def _repeated(metric: Metric, readings: Sequence[Reading]) -> Reading:
    """The first launch's, with the names of which no other launch has other numbers."""
    first = readings[0]
    for other in readings[1:]:
        first = msgspec.structs.replace(first, series=repeated(metric, first, other))
    return msgspec.structs.replace(first, value=len(first.series))


def _with_common_digests(readings: Sequence[Reading]) -> Reading:
    """The first launch's, as far as no other launch has other digests: data that differ there tell nothing. A name
    without any is one of such data.
    """
    common = dict(readings[0].digests)
    for other in readings[1:]:
        common = {
            name: digests[: first_other(digests, other.digests.get(name, [""]))] for name, digests in common.items()
        }
        common |= {name: [] for name in other.digests.keys() - common.keys()}
    return msgspec.structs.replace(readings[0], digests=common)


def _derive(metric: Metric, readings: dict[str, Reading], uncounted: dict[str, str], world_size: int) -> None:
    """Put the metric that its formula makes of the pooled readings into them, or the reason why it is left out."""
    readings.pop(metric.name, None)
    uncounted.pop(metric.name, None)
    if (made := derived(metric, readings, world_size)) is not None:
        readings[metric.name] = made
    elif metric.underived:
        uncounted[metric.name] = metric.underived


def _differing(
    first: Measurement, other: Measurement, metrics: Iterable[Metric]
) -> Iterator[tuple[Metric, Reading, Reading]]:
    """The metrics that should repeat themselves and did not."""
    strategy = CellId.split(first.cell).strategy
    for metric in metrics:
        old, new = first.readings.get(metric.name), other.readings.get(metric.name)
        if old and new and rule_of(metric).differs(metric, old, new, strategy):
            yield metric, old, new


def _absent(first: Measurement, other: Measurement, metrics: Iterable[Metric], number: int) -> str:
    """The first number that launch ``number`` or the first lacks, as an error; empty if there is none.

    A formula may leave its metric out for the times of one launch, such as an MFU above 100 %. Its inputs are checked.
    """
    for metric in metrics:
        if metric.derive is None and (metric.name in first.readings) != (metric.name in other.readings):
            return f"{metric.title} was measured in launch {number} or in the first, but not in both."
    return ""


def _differs(first: Measurement, other: Measurement, metrics: Iterable[Metric], number: int) -> str:
    """The first number that should repeat itself and did not in launch ``number``, as an error; empty if all did."""
    for metric, old, new in _differing(first, other, metrics):
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
