"""Planned layouts beside traces of the code that they name: one rank of all, and how far the closed form is off."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from perfsuite.catalog.cell import Cell, Hardware, why_not, why_too_long
from perfsuite.catalog.definitions import Engine, Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import DIMENSIONS, parse_strategy
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.plan.layout_memory import needed_bytes, tensor_parts
from perfsuite.features.predict.plan.layout_names import RECOMPUTE, name_of
from perfsuite.features.predict.plan.question import PlanQuestion
from perfsuite.features.predict.prediction import ClosedMemory, PlannedLayout, Prediction, TracedMemory, VerifiedLayout
from perfsuite.features.predict.time.cell_steps import setup_of
from perfsuite.features.predict.time.costs import MOMENTS
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.launch.hardware_here import why_missing
from perfsuite.records.failure import Failure
from perfsuite.system.machine import cores

# What decides which layout it is, beside its name; and what its kernels decide, which a closed form can follow.
DECIDES = ("sequence", "target", "precision", "sequence_parallel", "moment_bytes", "master_bytes")
KERNELS = ("attention", "cross_entropy", "dropout", "gradient_bytes", "parameter_bytes_moved")
# Parts of the closed form, with the categories of a trace that each is. Activations are all that is left.
STATE = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("master_parameters", "optimizer_state"),
}
NUMBER = "0123456789.%"  # the end of a word
ACTIVATIONS, ALLOCATOR = "activations", "allocator"


def verify_each(
    layouts: Sequence[PlannedLayout],
    model: Model | None,
    question: PlanQuestion,
    hardware: Hardware,
    catalog: Catalog,
) -> Iterator[VerifiedLayout]:
    """Every layout beside its trace as soon as that is known, or with the reason why there is none. ``model`` is that
    of the catalog; without one nothing is traced.
    """
    cells: list[Cell] = []
    planned: list[tuple[PlannedLayout, Setup]] = []
    for layout in layouts:
        setup = question.setup(layout.layout)
        try:
            if model is None:
                raise Refused("a model needs code to trace: one of `perfsuite list models`, or a config.json's class")
            cells.append(cell_of(setup, model, question, hardware, catalog))
            planned.append((layout, setup))
        except Refused as error:
            yield _untraced(layout, str(error))
    with MemoryTracer(cores()) as tracer:
        for number, found in attempt_each(cells, catalog, tracer, padded=False):
            yield beside(*planned[number], cells[number], found, question)


def beside(
    layout: PlannedLayout, setup: Setup, cell: Cell, found: Prediction | Failure, question: PlanQuestion
) -> VerifiedLayout:
    """A layout beside what its cell's trace has found."""
    if isinstance(found, Failure):
        return _untraced(layout, f"the trace failed: {found.message}", cell)
    if found.outcome == "unsupported":
        return _untraced(layout, found.reason, cell)
    own = setup_of(cell, padded=False)
    traced = dataclasses.replace(setup, accumulation=own.accumulation, **{name: getattr(own, name) for name in KERNELS})
    changed = (name for name in KERNELS if getattr(own, name) != getattr(setup, name))
    closed = closed_memory(question, traced)
    return VerifiedLayout(
        layout=layout.layout,
        planned_bytes=layout.predicted_bytes,
        cell=cell.id,
        otherwise={name: (str(getattr(own, name)), str(getattr(setup, name))) for name in changed},
        closed=closed,
        traced=TracedMemory(
            traced_bytes=found.smallest_bytes,
            traced_parts=traced_parts(found),
            rank=found.rank,
            micro_batches=own.accumulation,
            fits=found.outcome == "fits",
            seconds=found.seconds,
        ),
    )


def closed_memory(question: PlanQuestion, setup: Setup) -> ClosedMemory:
    """The closed form of a setup, by part."""
    parts = tensor_parts(question.shape, setup, question.software.name)
    needed = needed_bytes(question.shape, setup, question.software.name)
    found = {name: parts.get(name, 0.0) for name in STATE}
    found[ACTIVATIONS] = sum(parts.values()) - sum(found.values())
    found[ALLOCATOR] = needed - sum(parts.values())
    return ClosedMemory(closed_bytes=round(needed), closed_parts={name: round(size) for name, size in found.items()})


def traced_parts(found: Prediction) -> dict[str, int]:
    """The parts of a trace's peak, by the names of the closed form. What the allocator needs in addition is one."""
    parts = {name: sum(found.parts.get(one, 0) for one in own) for name, own in STATE.items()}
    parts[ACTIVATIONS] = found.peak_bytes - sum(parts.values())
    return parts | {ALLOCATOR: found.smallest_bytes - found.peak_bytes}


def cell_of(setup: Setup, model: Model, question: PlanQuestion, hardware: Hardware, catalog: Catalog) -> Cell:
    """The cell whose code is the setup's, with as many micro-batches as a rank has in flight. Raises Refused."""
    stack = question.software.name
    engines = [one for one in catalog.all("engine").values() if stack in one.stacks]
    if not engines:
        raise Refused(f"no engine here trains as {stack} does")
    workload = Workload(
        micro_batch=setup.micro_batch, sequence_length=setup.sequence, target_length=setup.target or None
    )
    nearest: list[tuple[int, str]] = []
    for engine in engines:
        try:
            strategy = parse_strategy("+".join([engine.name, *words(engine, setup, catalog)]), catalog)
            cell = Cell(model, strategy, hardware, workload)
            differs = differences(setup, setup_of(cell, padded=False))
        except UsageError as error:
            nearest.append((len(DECIDES), str(error)))
            continue
        if differs:
            nearest.append((len(differs), f"no engine here trains it: {engine.name} has {', '.join(differs)}"))
            continue
        sized = dataclasses.replace(model, workload=workload)
        if reason := why_not(sized, strategy, hardware) or why_too_long(model, workload) or why_missing(strategy):
            raise Refused(reason)
        return cell
    raise Refused(min(nearest, key=lambda one: one[0])[1])


def words(engine: Engine, setup: Setup, catalog: Catalog) -> list[str]:
    """The techniques of a strategy by which the engine is most like the setup."""
    known = catalog.all("technique")
    numbers = {"dp": setup.layout.replicas, "tp": setup.layout.tensor, "acc": micro_batches(setup)}
    own = {name for name in numbers if known[name].parameter in DIMENSIONS and name not in engine.combines}
    plain = {
        setup.precision: True,
        next((word for word, kind in RECOMPUTE.items() if kind == setup.recompute), ""): setup.recompute != "none",
        "nodrop": not setup.dropout,
        "sp": setup.sequence_parallel,
        "offload_optimizer": setup.offload,
        "adamw8bit": setup.moment_bytes < MOMENTS,
    }
    chosen = [name for name, is_on in plain.items() if is_on and name in known]
    return [*chosen, *(f"{name}{number}" for name, number in numbers.items() if number > 1 and name not in own)]


def micro_batches(setup: Setup) -> int:
    """How many a trace needs: a stage has at most one for each stage in flight, and with several chunks twice as many
    take part; a second one meets the gradients of the first.
    """
    return min(setup.accumulation, max(2, setup.layout.pipeline * (2 if setup.interleave > 1 else 1)))


def differences(setup: Setup, own: Setup) -> list[str]:
    """What the cell has otherwise than the setup: words of its name, and fields that no name says."""
    wanted, has = name_of(setup).split(), name_of(own).split()
    lacks = [f"no {word}" for word in wanted if word not in has]
    names = {word.rstrip(NUMBER) for word in wanted}
    lacks += [word for word in has if word not in wanted and word.rstrip(NUMBER) not in names]
    return lacks + [
        f"{name} {getattr(own, name)} instead of {getattr(setup, name)}"
        for name in DECIDES
        if getattr(setup, name) != getattr(own, name)
    ]


def _untraced(layout: PlannedLayout, reason: str, cell: Cell | None = None) -> VerifiedLayout:
    named: dict[str, Any] = {"cell": cell.id} if cell else {}
    reason = reason[0].lower() + reason[1:] if reason.startswith(("No ", "The ", "A ")) else reason
    return VerifiedLayout(
        layout=layout.layout, planned_bytes=layout.predicted_bytes, not_traced=reason.rstrip("."), **named
    )
