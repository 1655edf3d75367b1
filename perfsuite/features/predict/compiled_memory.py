"""The prediction of a cell whose step is compiled: what the compiler says that its program needs."""

from perfsuite.catalog.cell import Cell
from perfsuite.features.predict.prediction import WHOLE_STEP, Prediction
from perfsuite.features.predict.theory import model_state
from perfsuite.features.predict.trace_records import Trace
from perfsuite.records.formats import FORMAT


def of_program(cell: Cell, trace: Trace) -> Prediction:
    """The prediction of all ranks, which run one program. The compiler places its buffers itself, so that no allocator
    adds anything, and it knows what of the device programs may use.
    """
    compiled = trace.readings["compiled_bytes"]
    size, capacity = int(compiled.value), cell.hardware.device.usable_bytes if cell.hardware.device else None
    return Prediction(
        format=FORMAT,
        cell=cell.id,
        outcome="fits" if capacity is None or size <= capacity else "oom",
        world_size=cell.hardware.world_size,
        phase=WHOLE_STEP,
        peak_bytes=size,
        parts={name: part for name, part in compiled.parts.items() if part},
        ranks={0: size},
        capacity_bytes=capacity,
        theory=model_state(cell, cell.layout),
        categories=list(compiled.parts),
        readings=trace.readings,
        versions=trace.versions,
        seconds=trace.seconds,
        rss_bytes=trace.rss_bytes,
    )
