"""From a search to a plan: days, device-hours and cost of a whole training, with their interval."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from perfsuite.catalog.cell import Hardware
from perfsuite.errors import UsageError
from perfsuite.features.predict.plan.planned import Planned
from perfsuite.features.predict.plan.question import StepWish, on_hardware
from perfsuite.features.predict.plan.search import search
from perfsuite.features.predict.prediction import Plan
from perfsuite.features.predict.time.schedule import Span, spans
from perfsuite.records.formats import FORMAT

DAY, HOUR = 86400.0, 3600.0
SMALLER = ("fsdp2", "deepspeed")  # stacks that need less memory than others


@dataclass(frozen=True, kw_only=True)
class Wish(StepWish):
    """What is asked of every hardware alike: a training of so many ``tokens``, its steps, and the ``price`` of a device
    for an hour. ``layout`` is the only one to try; else the ``count`` fastest ones are shown.
    """

    tokens: int
    layout: str = ""
    price: float | None = None
    count: int = 5


def plan(model: Planned, hardware: Hardware, wish: Wish) -> Plan:
    """The fastest layouts. Raises Refused for a device without a closed form, UsageError for an option."""
    ranks = hardware.world_size
    question = on_hardware(model, hardware, wish)
    samples = question.samples
    found = search(question, wish.count, wish.layout)
    days: list[float] = []
    if found.best:
        best = found.best[0]
        steps = wish.tokens / (samples * (model.sequence + model.target))
        days = [steps * one / DAY for one in (best.low_seconds, best.predicted_step_seconds, best.high_seconds)]
    hours = [day * DAY / HOUR * ranks for day in days]
    return Plan(
        format=FORMAT,
        model=model.name,
        hardware=hardware.name,
        world_size=ranks,
        sequence=model.sequence,
        target=model.target,
        samples=samples,
        tokens=wish.tokens,
        tried=found.tried,
        fitting=found.fitting,
        other_stacks=[] if found.best else _others(model, hardware, wish),
        least_bytes=round(found.least_bytes) if found.tried else 0,
        least_host_bytes=round(found.least_host_bytes) if found.least_host_bytes < math.inf else 0,
        capacity_bytes=round(found.capacity),
        stack=question.software.name,
        stack_says=question.software.says,
        stack_usual=not wish.stack,
        experts=any(stack.experts for stack in model.shape.stacks),
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        later_layers=model.shape.extra,
        beside=list(model.beside),
        precision=question.precision,
        host_memory_bytes=round(wish.host_memory),
        node_network_bytes_per_second=question.machine.network_bandwidth * question.machine.node,
        layouts=list(found.best),
        days=days,
        gpu_hours=hours,
        cost=[hour * wish.price for hour in hours] if wish.price else [],
    )


def _others(model: Planned, hardware: Hardware, wish: Wish) -> list[str]:
    """The stacks that divide parameters, or have offload, with which a layout fits."""
    if wish.layout or wish.precision:
        return []
    found = []
    for name in SMALLER:
        with suppress(UsageError):  # an option that it does not have
            if search(on_hardware(model, hardware, replace(wish, stack=name)), 1).best:
                found.append(name)
    return found


def spans_of_best(model: Planned, hardware: Hardware, wish: Wish, found: Plan) -> list[Span]:
    """The schedule of the best layout of a plan with these inputs."""
    question = on_hardware(model, hardware, wish)
    best = question.setup(found.layouts[0].layout)
    return spans(question.shape, best, question.machine, question.constants)
