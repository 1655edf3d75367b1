"""Which ranks of a cell are traced, which of them do the same, and what all of them need together."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Prediction
from perfsuite.records.failure import Failure
from perfsuite.records.sample import Reading


def ranks_of(cell: Cell) -> list[int]:
    """The ranks to trace: the first rank of a pipeline stage, and the last if something is sharded, since its share
    differs. All others of a stage do the same. The stages are the first, the second and the last: those between have
    the layers of the second, and no more micro-batches in flight.
    """
    layout = cell.layout
    if PROCESSES[cell.strategy.engine.process].compiled:
        return [0]  # all run one program
    width = layout.stage_ranks
    inside = {0, width - 1} if cell.strategy.engine.shards else {0}
    stages = {0, min(1, layout.pipeline - 1), layout.pipeline - 1}
    return sorted(stage * width + rank for stage in stages for rank in inside)


def firsts_of(cell: Cell) -> list[int]:
    """The first rank of each stage that ranks_of has: another's share of what is sharded is nearly the same."""
    layout = cell.layout
    return [rank for rank in ranks_of(cell) if not rank % layout.stage_ranks]


def first_like(cell: Cell, rank: int, counted: bool) -> int | None:
    """The first rank of the stage, if this one does the same with parts of the same shapes.

    Engines that shard parameters treat all ranks alike: each gathers everything and keeps one part. If parts have
    equal shapes, so has all else. ZeRO 1 and 2 do not: a rank's gradients are ready early or late in backward.
    """
    layout = cell.layout
    width = layout.stage_ranks
    alike = "parameters" in cell.strategy.engine.shards and layout.tensor == 1
    return rank // width * width if alike and rank % width and not counted else None


def of_all_ranks(found: Sequence[Prediction | Failure], cell: Cell, catalog: Catalog) -> Prediction | Failure:
    """That of the rank that needs most, with every rank's peak and folded counts; or why one failed."""
    ranks = [one for one in found if isinstance(one, Prediction)]
    if len(ranks) < len(found):
        return next(one for one in found if isinstance(one, Failure))
    fullest = max(ranks, key=lambda one: (one.outcome == "unsupported", one.smallest_bytes, one.peak_bytes))
    peaks = {rank: size for one in ranks for rank, size in one.ranks.items()}
    layout = cell.layout
    width, last = layout.stage_ranks, layout.pipeline - 1
    folds = {metric.name: metric.fold for metric in catalog.metrics(cell.strategy.engine.process)}
    readings = {}
    for name in fullest.readings:
        if any(name not in one.readings for one in ranks):
            continue  # a rank could not count it
        if folds[name] == "sum":  # the first rank counts for its whole stage, the second stage for all between
            firsts = [one for one in ranks if one.rank % width == 0]
            alike = [last - 1 if 0 < first.rank // width < last else 1 for first in firsts]
            readings[name] = _summed([first.readings[name] for first in firsts], alike)
        else:
            readings[name] = max((one.readings[name] for one in ranks), key=lambda reading: reading.value)
    return msgspec.structs.replace(fullest, ranks=peaks, readings=readings)


def _summed(readings: Sequence[Reading], times: Sequence[int]) -> Reading:
    """The sum of the readings, each taken so many times."""
    parts, suspects = Counter[str](), Counter[str]()
    for reading, number in zip(readings, times, strict=True):
        parts.update({name: number * part for name, part in reading.parts.items()})
        suspects.update({name: number * part for name, part in reading.suspects.items()})
    value = sum(number * reading.value for reading, number in zip(readings, times, strict=True))
    return Reading(value=value, parts=parts, suspects=suspects)
