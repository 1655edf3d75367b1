"""The largest model of the catalog that a strategy fits into a device's memory.

The closed form of the model state orders the models and says where to begin. From there models are estimated in pairs,
up or down, until one fits and the next does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsuite.catalog.cell import Cell, Hardware, make_cell, why_too_long
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.predict.shallow import estimate_each, shallow
from perfsuite.features.predict.sizes import Size
from perfsuite.features.predict.theory import model_state
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.records.failure import Failure

BESIDE = 1.25  # what a step needs of a device by the model state alone, where the search begins
SMALLEST = 2**27  # parameters: smaller models are those of tests


@dataclass(frozen=True)
class Search:
    """What was estimated, by the model state. ``larger`` are the models that were not: their state does not fit."""

    cells: tuple[Cell, ...]
    sizes: tuple[Size | Failure, ...]
    larger: int

    @property
    def best(self) -> Cell | None:
        """The largest that fits."""
        pairs = zip(self.cells, self.sizes, strict=True)
        fitting = [cell for cell, size in pairs if _outcome(size) == "fits"]
        return max(fitting, key=lambda cell: cell.model.parameters, default=None)


def candidates(
    strategy: str, hardware: Hardware, catalog: Catalog, *, micro_batch: int, sequence_length: int
) -> list[Cell]:
    """The causal language models that the strategy can train there, by their state. Raises Refused if there is none."""
    found, reasons = [], []
    for model in catalog.all("model").values():
        if model.task != "causal_lm" or model.parameters < SMALLEST:
            continue
        workload = replace(model.workload, micro_batch=micro_batch, sequence_length=sequence_length)
        try:
            cell = make_cell(model.name, strategy, hardware.name, catalog)
            if reason := why_too_long(model, workload):
                raise Refused(reason)
        except Refused as error:
            reasons.append(error)
            continue
        found.append(replace(cell, workload=workload))
    if not found:
        raise reasons[0]
    return sorted(found, key=_state)


def _state(cell: Cell) -> int:
    return sum(model_state(cell, cell.layout).values())


def search(cells: Sequence[Cell], catalog: Catalog, tracer: MemoryTracer, *, padded: bool, fresh: bool) -> Search:
    """Where the cells, in the order of ``candidates``, stop fitting. An estimate that is close decides, too."""
    device = cells[0].hardware.device
    assert device is not None
    possible = sum(_state(cell) <= device.usable_bytes for cell in cells)
    left, known = list(cells[:possible]), dict[str, Size | Failure]()
    at = max(0, sum(_state(cell) * BESIDE <= device.usable_bytes for cell in left) - 1)
    while wanted := [cell for cell in left[max(at, 0) : at + 2] if cell.id not in known]:
        for index, size in _each(wanted, catalog, tracer, padded=padded, fresh=fresh):
            known[wanted[index].id] = size
        if unknown := [cell for cell in wanted if _outcome(known[cell.id]) == "unsupported"]:
            left = [cell for cell in left if cell not in unknown]  # the others move closer
            continue
        at += 1 if _outcome(known[wanted[-1].id]) == "fits" else -1 if _outcome(known[wanted[0].id]) == "oom" else 0
    tried = [cell for cell in cells if cell.id in known]
    return Search(tuple(tried), tuple(known[cell.id] for cell in tried), len(cells) - possible)


def _outcome(size: Size | Failure) -> str:
    return "unsupported" if isinstance(size, Failure) else size.outcome


def _each(
    cells: Sequence[Cell], catalog: Catalog, tracer: MemoryTracer, *, padded: bool, fresh: bool
) -> list[tuple[int, Size | Failure]]:
    deep = [number for number, cell in enumerate(cells) if shallow(cell)]
    others = [number for number in range(len(cells)) if number not in deep]
    estimated = estimate_each([cells[one] for one in deep], catalog, tracer, padded, fresh) if deep else ()
    found: list[tuple[int, Size | Failure]] = [(deep[index], size) for index, size in estimated]
    whole = attempt_each([cells[one] for one in others], catalog, tracer, padded=padded, fresh=fresh) if others else ()
    return found + [(others[index], size) for index, size in whole]
