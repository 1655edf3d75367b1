"""From a search to a plan: days, device-hours and cost of a whole training, with their interval."""

import math
from dataclasses import dataclass

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.definitions import Model
from perfsuite.predict.plan.search import HOST_MEMORY, Question, layouts, name_of, question_of, samples_of, search
from perfsuite.predict.time.schedule import Span, spans
from perfsuite.predict.time.shape import shape_of
from perfsuite.records.formats import FORMAT
from perfsuite.records.prediction import Plan

DAY, HOUR = 86400.0, 3600.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked of every hardware alike. ``node_network`` is a node's rate in bytes per second, ``latency`` a
    factor of NCCL's latencies between nodes, and ``host_memory`` a node's bytes.
    """

    tokens: int
    samples: int | None = None
    node_network: float | None = None
    latency: float = 1.0
    stack: str = "megatron"
    price: float | None = None
    host_memory: float = HOST_MEMORY
    count: int = 5


def plan(model: Model, hardware: Hardware, wish: Wish) -> Plan:
    """The fastest layouts. Raises Refused for a model or a device without a closed form."""
    workload, ranks = model.workload, hardware.world_size
    target = workload.target_length or 0
    question = _question(model, hardware, wish)
    samples = question.samples
    found = search(question, wish.count)
    days: list[float] = []
    if found.best:
        best = found.best[0]
        steps = wish.tokens / (samples * (workload.sequence_length + target))
        days = [steps * one / DAY for one in (best.low_seconds, best.predicted_step_seconds, best.high_seconds)]
    hours = [one * DAY / HOUR * ranks for one in days]
    return Plan(
        format=FORMAT,
        model=model.name,
        hardware=hardware.name,
        world_size=ranks,
        sequence=workload.sequence_length,
        target=target,
        samples=samples,
        tokens=wish.tokens,
        tried=found.tried,
        fitting=found.fitting,
        least_bytes=round(found.least_bytes) if found.tried else 0,
        least_host_bytes=round(found.least_host_bytes) if found.least_host_bytes < math.inf else 0,
        capacity_bytes=round(found.capacity),
        stack=wish.stack,
        precision="bf16" if question.attention == "flash" else "fp16",
        host_memory_bytes=round(wish.host_memory),
        node_network_bytes_per_second=question.machine.network_bandwidth * question.machine.node,
        layouts=list(found.best),
        days=days,
        gpu_hours=hours,
        cost=[one * wish.price for one in hours] if wish.price else [],
    )


def spans_of_best(model: Model, hardware: Hardware, wish: Wish, found: Plan) -> list[Span]:
    """The schedule of the best layout of a plan with these inputs."""
    question = _question(model, hardware, wish)
    best = next(one for one in layouts(question) if name_of(one) == found.layouts[0].layout)
    return spans(question.shape, best, question.machine, question.constants)


def _question(model: Model, hardware: Hardware, wish: Wish) -> Question:
    """What is planned. Raises Refused for a model or a device without a closed form."""
    shape_of(model)  # a model without dimensions is refused for that, not for its lengths
    samples = samples_of(wish.samples, model.workload.sequence_length, hardware.world_size)
    network = wish.node_network / hardware.ranks if wish.node_network else None
    return question_of(model, hardware, samples, wish.stack, network, wish.host_memory, wish.latency)
