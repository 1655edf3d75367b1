"""Folds the readings of all ranks into one. All must be finite.

A metric's value is the summary of its folded samples if its rule has one: the median of a "time" (its folded sample is
the slowest rank's), the last step of a "close" one. All others fold the ranks' values. Every rank's value is kept.

One rank of a script may save, evaluate or sample alone. An optional metric of a script is folded over the ranks that
have it, and is 0 on the others.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules import Summary, rule_of
from perfsuite.errors import PerfsuiteError
from perfsuite.records.digests import first_other, joined
from perfsuite.records.sample import RankSample, Reading, is_number

Number = int | float
PARTED = "parted"
_FOLDS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "mean": statistics.fmean,
    PARTED: max,  # and the ranks that have parted
}


class GatherError(PerfsuiteError):
    """The ranks' samples do not make one measurement; the message names the metric and the rank."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def fold(metric: Metric, ranks: Sequence[RankSample], alone: bool) -> Reading | None:
    """An optional metric may be missing on all ranks. If only some have it, the fold would hide a rank that lost it,
    unless one rank may do ``alone`` what it measures.
    """
    missing = [sample.rank for sample in ranks if metric.name not in sample.readings]
    if metric.optional and len(missing) == len(ranks):
        return None
    if missing and not (alone and metric.optional):
        raise GatherError(f"{metric.name} is missing on rank {missing[0]}.")
    if metric.fold not in _FOLDS:
        raise GatherError(f"{metric.name} has no fold {metric.fold!r}. Known: {', '.join(_FOLDS)}.")
    by_rank = {sample.rank: sample.readings[metric.name] for sample in ranks if metric.name in sample.readings}
    for rank, reading in by_rank.items():
        _check(metric, rank, reading)
    readings = list(by_rank.values())
    samples = _longest(metric, readings) if rule_of(metric).is_open_ended else _fold_samples(metric, readings)
    values = [reading.value for reading in readings]
    summary = rule_of(metric).summary
    value = _summary(metric, summary, samples, readings) if summary else _apply(metric, values)
    value += _parted(readings) if metric.fold == PARTED else 0
    parts = _fold_parts(metric, readings)
    if parts and sum(parts.values()) != value:
        raise GatherError(f"{metric.name} is {value:,} over all ranks, but its parts sum to {sum(parts.values()):,}.")
    fullest = max(readings, key=lambda reading: reading.value)
    every = [
        one
        for reading in (by_rank.get(sample.rank, Reading(value=0)) for sample in ranks)
        for one in (reading.ranks or [reading.value])
    ]
    evidence: Any = {"suspects": fullest.suspects, "lines": fullest.lines, "phases": fullest.phases}
    evidence |= {"series": _fold_series(readings), "digests": _fold_digests(readings)}
    return Reading(value=value, parts=parts, samples=samples, ranks=every, **evidence)


def _parted(readings: Sequence[Reading]) -> int:
    """How many ranks have other digests than the first rank that had the same one at first."""
    firsts: dict[str, list[str]] = {}
    ranks = [digests for reading in readings for digests in reading.digests.values() if digests]
    return sum(first_other(firsts.setdefault(digests[0], digests), digests) is not None for digests in ranks)


def _fold_digests(readings: Sequence[Reading]) -> dict[str, list[str]]:
    """One of the ranks that have a name, as far as all of these have its digests."""
    names = dict.fromkeys(name for reading in readings for name in reading.digests)
    known = {name: [reading.digests[name] for reading in readings if name in reading.digests] for name in names}
    return {name: [joined(column) for column in zip(*ranks, strict=False)] for name, ranks in known.items()}


def _fold_series(readings: Sequence[Reading]) -> dict[str, list[float | None]]:
    """The means over the ranks that have a name, as far as all of these have its numbers."""
    folded: dict[str, list[float | None]] = {}
    for name in dict.fromkeys(name for reading in readings for name in reading.series):
        columns = zip(*(reading.series[name] for reading in readings if name in reading.series), strict=False)
        folded[name] = [None if None in column else statistics.fmean(column) for column in columns]
    return folded


def _check(metric: Metric, rank: int, reading: Reading) -> None:
    """Refuse values that are not finite numbers, and parts that do not add up."""
    for value in (reading.value, *reading.samples, *reading.parts.values()):
        if value is not None and not is_number(value):
            raise GatherError(f"{metric.name} on rank {rank} is {value}, which is not a finite number.")
    for name, size in reading.parts.items():
        if size < 0:
            raise GatherError(f"{metric.name} on rank {rank} has {size:,} of {name}, a negative number.")
    total = sum(reading.parts.values())
    if reading.parts and total != reading.value:
        raise GatherError(f"{metric.name} on rank {rank} is {reading.value:,}, but its parts sum to {total:,}.")


def _fold_samples(metric: Metric, readings: Sequence[Reading]) -> list[float | None]:
    """Fold sample by sample. One that any rank lacks (an fp16 step that overflowed) is None for all."""
    length = len(readings[0].samples)
    for rank, reading in enumerate(readings):
        if len(reading.samples) != length:
            raise GatherError(
                f"{metric.name} has {len(reading.samples)} samples on rank {rank}, but {length} on rank 0."
            )
    folded: list[float | None] = []
    for column in zip(*(reading.samples for reading in readings), strict=True):
        numbers = [number for number in column if number is not None]
        folded.append(_apply(metric, numbers) if len(numbers) == len(column) else None)
    return folded


def _longest(metric: Metric, readings: Sequence[Reading]) -> list[float | None]:
    """Fold sample by sample those that are there: a rank may have made more steps than another."""
    columns = itertools.zip_longest(*(reading.samples for reading in readings))
    return [_apply(metric, [number for number in column if number is not None]) for column in columns]


def _summary(metric: Metric, summary: Summary, samples: Sequence[float | None], readings: Sequence[Reading]) -> float:
    numbers = [sample for sample in samples if sample is not None]
    if numbers:
        return summary(numbers)
    for rank, reading in enumerate(readings):
        if all(sample is None for sample in reading.samples):
            raise GatherError(f"{metric.name} has no sample on rank {rank}.")
    raise GatherError(f"{metric.name} has no step with a sample on every rank from 0 to {len(readings) - 1}.")


def _fold_parts(metric: Metric, readings: Sequence[Reading]) -> dict[str, int]:
    """The parts of the fullest rank (the first, if some are equal), or the sums over all ranks."""
    if metric.fold == "max":
        return max(readings, key=lambda reading: reading.value).parts
    summed: Counter[str] = Counter()
    for rank, reading in enumerate(readings):
        if reading.parts and metric.fold != "sum":
            raise GatherError(f"{metric.name} on rank {rank} has parts, which the fold {metric.fold!r} cannot fold.")
        summed.update(reading.parts)
    return dict(summed)


def _apply(metric: Metric, values: Sequence[Number]) -> Number:
    try:
        value: Number = _FOLDS[metric.fold](values)
    except OverflowError:
        value = float("inf")
    if not is_number(value):
        raise GatherError(f"The {metric.fold} of {metric.name} over {len(values)} ranks is not a finite number.")
    return value
