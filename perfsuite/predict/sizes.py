"""The memory of many cells at once: all are estimated, and those that decide are traced whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.predict.memory import attempt_each, is_kept
from perfsuite.predict.shallow import estimate_each, shallow
from perfsuite.predict.untraceable import why_not_traced
from perfsuite.records.prediction import Estimate, Prediction
from perfsuite.trace.tracing import Tracer
from perfsuite.wire.failure import Failure

Size = Prediction | Estimate
CONFIRMED = 2  # of the first that fit by an estimate: they are traced whole
CLOSE = 0.03  # of what is needed: the errors of estimates are smaller (docs/memory.md)


def sizes_each(
    cells: Sequence[Cell], catalog: Catalog, processes: int, *, padded: bool, fresh: bool, whole: bool
) -> Iterator[tuple[int, Size | Failure]]:
    """The number of every cell with its memory as soon as it is known; the most interesting cells are the first.

    Deep models are estimated, unless ``whole`` or a prediction is in the cache. Then those that decide have a second
    result, their prediction.
    """

    def deep(cell: Cell) -> bool:
        return not (whole or why_not_traced(cell)) and bool(shallow(cell)) and (fresh or not kept(cell))

    def kept(cell: Cell) -> bool:
        return is_kept(cell, catalog, padded)

    estimated = [number for number, cell in enumerate(cells) if deep(cell)]
    traced = [number for number in range(len(cells)) if number not in estimated]
    found: dict[int, Estimate] = {}
    with Tracer(processes) as tracer:
        for index, one in estimate_each([cells[number] for number in estimated], catalog, tracer, padded, fresh):
            if isinstance(one, Estimate):
                found[estimated[index]] = one
                yield estimated[index], one
            else:
                traced.append(estimated[index])  # a whole trace may say more
        traced += deciding(found)
        options = {"padded": padded, "counted": False, "fresh": fresh}
        for index, size in attempt_each(
            [cells[number] for number in traced], catalog, processes=processes, tracer=tracer, **options
        ):
            yield traced[index], size


def deciding(found: Mapping[int, Estimate]) -> list[int]:
    """The first that fit, and all that are so close to the capacity that only a trace decides."""
    close = [
        number for number, one in found.items() if abs(one.capacity_bytes - one.needed_bytes) < CLOSE * one.needed_bytes
    ]
    fit = [number for number in sorted(found) if found[number].outcome == "fits"]
    return list(dict.fromkeys((*fit[:CONFIRMED], *close)))
