"""The memory of many cells at once: all are estimated, unless their state alone does not fit. One that its estimate
cannot decide is traced whole.
"""

from collections.abc import Iterator, Mapping, Sequence

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.prediction import Estimate, Prediction
from perfsuite.features.predict.shallow import estimate_each, shallow
from perfsuite.features.predict.state_bound import StateBound, state_bound
from perfsuite.features.predict.trace.tracing import MemoryTracer, job_of, kept_at
from perfsuite.features.predict.traced_memory import attempt_each, is_kept
from perfsuite.features.predict.untraceable import why_no_operators
from perfsuite.records.failure import Failure

Size = Prediction | Estimate | StateBound
CLOSE = 0.04  # by which share an estimate may be too small (docs/memory.md)
LARGE = 0.10  # by which share one may be too large: a deep model may lose less than a shallow one


def sizes_each(
    cells: Sequence[Cell], catalog: Catalog, tracer: MemoryTracer, *, padded: bool, fresh: bool
) -> Iterator[tuple[int, Size | Failure]]:
    """The number of every cell with its memory as soon as it is known; the most interesting cells are the first.

    What needs no trace comes first. Deep models are estimated, unless a prediction is in the cache. Those that are
    close to the capacity then have a second result, their prediction.
    """

    def known(cell: Cell) -> bool:
        return not fresh and is_kept(cell, catalog, padded)

    def deep(cell: Cell) -> bool:
        return not (known(cell) or why_no_operators(cell)) and bool(shallow(cell))

    def trace(numbers: Sequence[int]) -> Iterator[tuple[int, Size | Failure]]:
        chosen = [cells[number] for number in numbers]
        for index, one in attempt_each(chosen, catalog, tracer, padded=padded, fresh=fresh):
            yield numbers[index], one

    bounds = {
        number: bound
        for number, cell in enumerate(cells)
        if not known(cell) and kept_at(job_of(cell, 0, catalog, padded)) and (bound := state_bound(cell))
    }
    yield from bounds.items()
    left = [number for number in range(len(cells)) if number not in bounds]
    estimated = [number for number in left if deep(cells[number])]
    found: dict[int, Size] = {}
    failed = []
    for number, size in trace([number for number in left if number not in estimated]):
        if not isinstance(size, Failure):
            found[number] = size
        yield number, size
    chosen = [cells[number] for number in estimated]
    for index, one in estimate_each(chosen, catalog, tracer, padded, fresh):
        if isinstance(one, Failure):
            failed.append(estimated[index])  # a whole trace may say more
        else:
            found[estimated[index]] = one
            yield estimated[index], one
    yield from trace([*failed, *undecided(found)])


def undecided(found: Mapping[int, Size]) -> list[int]:
    """The estimated ones that are so close to the capacity that only a whole trace decides."""
    estimates = {number: one for number, one in sorted(found.items()) if isinstance(one, Estimate)}
    return [
        number
        for number, estimate in estimates.items()
        if estimate.needed_bytes * (1 - LARGE) < estimate.capacity_bytes < estimate.needed_bytes * (1 + CLOSE)
    ]
