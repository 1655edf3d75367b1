"""A cell's step with other software, for ``perfsuite fit --stack``: its layout, and the rest as the software has it."""

from perfsuite.catalog.cell import Cell
from perfsuite.errors import Refused
from perfsuite.features.predict.plan.planned import Planned
from perfsuite.features.predict.plan.question import StepWish, on_hardware, parts_of
from perfsuite.features.predict.plan.search import regime_of
from perfsuite.features.predict.prediction import PredictedTime
from perfsuite.features.predict.time.cell_steps import setup_of, unknown
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.speed import said


def time_with(cell: Cell, stack: str) -> PredictedTime:
    """The predicted step of a cell's layout and batch with the software ``stack``; ``untimed`` is what it lacks."""
    if word := unknown(cell):
        return PredictedTime(cell=cell.id, untimed=word)
    try:
        base = setup_of(cell, padded=False)
        model = Planned(name=cell.model.name, shape=shape_of(cell.model), sequence=base.sequence, target=base.target)
        asked = on_hardware(model, cell.hardware, StepWish(samples=base.samples, stack=stack))
    except Refused:
        return PredictedTime(cell=cell.id, untimed=cell.model.name)
    setup = asked.made(
        layout=base.layout,
        interleave=base.interleave,
        sharded=base.sharded,
        micro_batch=base.micro_batch,
        accumulation=base.accumulation,
        recompute=base.recompute,
        offload=base.offload,
        adapter=base.adapter,
        base=base.base,
    )
    if lacking := [name for name in parts_of(setup) if name not in asked.software.has | asked.software.asked]:
        return PredictedTime(cell=cell.id, untimed=f"{stack} has no {lacking[0]}")
    found = asked.step(setup)
    kind = regime_of(asked, setup, found)
    return PredictedTime(cell=cell.id, **said(asked.shape, setup, asked.machine.flops, found, kind))
