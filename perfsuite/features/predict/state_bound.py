"""Cells that need no trace to say that they do not fit: the state that lasts over a step is larger than the device."""

from typing import Literal

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.processes import PROCESSES
from perfsuite.features.predict.theory import TRAINED, model_state
from perfsuite.records.record import Record

LASTING = ("parameters", "master_parameters", "optimizer_state")  # gradients may come and go


class StateBound(Record, frozen=True, kw_only=True):
    """The least that a cell needs of its device, by the closed form of what lasts. It is more than the device has."""

    cell: str
    outcome: Literal["oom"] = "oom"
    world_size: int
    needed_bytes: int
    capacity_bytes: int
    host_bytes: int = 0


def state_bound(cell: Cell) -> StateBound | None:
    """The bound of a cell whose lasting state does not fit; None for one that only a trace decides.

    Frozen weights are left to traces: what their formats keep beside them is an estimate. So is what an engine divides
    by a rule of its own, as experts are.
    """
    device, engine = cell.hardware.device, cell.strategy.engine
    frozen = any(one.technique.slot == TRAINED and not one.technique.default for one in cell.strategy.choices)
    evenly = engine.dimension in ("replicas", "tensor", "pipeline") or bool(engine.shards)
    if device is None or frozen or not evenly or PROCESSES[engine.process].compiled:
        return None
    state = model_state(cell, cell.layout)
    needed = sum(state.get(part, 0) for part in LASTING)
    if needed <= device.usable_bytes:
        return None
    return StateBound(
        cell=cell.id,
        world_size=cell.hardware.world_size,
        needed_bytes=needed,
        capacity_bytes=device.usable_bytes,
    )
