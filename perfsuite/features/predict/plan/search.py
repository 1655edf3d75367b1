"""Every layout of a model on some hardware that fits in memory, with its predicted time."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perfsuite.catalog.definitions import Layout
from perfsuite.features.predict.plan.layout_memory import host_bytes, needed_bytes
from perfsuite.features.predict.plan.layout_names import ALL, GRADIENTS, OPTIMIZER, RECOMPUTE, name_of
from perfsuite.features.predict.plan.question import PlanQuestion
from perfsuite.features.predict.plan.room import chance_to_fit, is_impossible
from perfsuite.features.predict.prediction import PlannedLayout
from perfsuite.features.predict.time.pipeline_fill import ENDS
from perfsuite.features.predict.time.regimes import kind_of, regime, unseen, was_fitted
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.software import peak_name
from perfsuite.features.predict.time.speed import said
from perfsuite.features.predict.time.step import Breakdown
from perfsuite.system.units import show_ratio

MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS = (1, 2, 3, 4, 6, 8, 12)
LONG = 16384  # tokens of a sequence from which on ranks may share it


def layouts(question: PlanQuestion) -> Iterator[Setup]:
    """Every setup that the software has, and that divides heads, layers, experts, ranks and batch without a rest."""
    for tensor, pipeline, context, experts in _widths(question):
        replicas = question.ranks // (tensor * pipeline * context)
        own_samples = question.samples // replicas
        whole = [own_samples] if own_samples <= MICRO_BATCHES[-1] else []
        for micro in (one for one in sorted({*MICRO_BATCHES, *whole}) if own_samples % one == 0):
            base = question.made(
                layout=Layout(pipeline=pipeline, replicas=replicas, tensor=tensor),
                context=context,
                experts=experts,
                micro_batch=micro,
                accumulation=question.samples // (replicas * micro),
            )
            yield from _variants(base, question)


def _widths(question: PlanQuestion) -> Iterator[tuple[int, int, int, int]]:
    """Widths of tensor parallelism, pipeline, context and experts: one of what the software does not have.

    Tensor-parallel ranks share a node, and the links of all of its devices: through a host's memory they do not pay.
    """
    shape, ranks, has, machine = question.shape, question.ranks, question.software.has, question.machine
    heads = min((stack.kv_heads for stack in shape.stacks if stack.heads), default=1)
    tensors = [divisor for divisor in _divisors(heads) if divisor <= machine.domain] if "tensor" in has else [1]
    stages = _stages(question) if "pipeline" in has and not shape.encodes else [1]
    contexts = [1, 2, 4, 8] if "context" in has and question.sequence >= LONG else [1]
    routed = max((stack.experts.count for stack in shape.stacks if stack.experts), default=1)
    for tensor in tensors:
        for pipeline in stages:
            for context in contexts:
                own = tensor * pipeline * context
                if ranks % own or question.samples % (ranks // own) or question.sequence % context:
                    continue
                apart = [divisor for divisor in _divisors(routed) if (ranks // pipeline) % divisor == 0]
                for experts in apart if "experts" in has else [1]:
                    yield tensor, pipeline, context, experts


def _stages(question: PlanQuestion) -> list[int]:
    """The stages that a pipeline may have: divisors of the layers, with embedding and loss or without; or of the ranks,
    if layers of several kinds are divided by their cost.
    """
    layers = question.shape.layers
    if len(question.shape.stacks) == 1:
        return sorted({*_divisors(layers), *(divisor for divisor in _divisors(layers + ENDS) if divisor <= layers)})
    return [divisor for divisor in _divisors(question.ranks) if divisor <= layers]


def _variants(base: Setup, question: PlanQuestion) -> Iterator[Setup]:
    """A layout with every recomputation, interleaving, sharding and offload that it can have."""
    layout, has, shape = base.layout, question.software.has, question.shape
    chunks = [1]
    if layout.pipeline > 1 and base.accumulation % layout.pipeline == 0 and "interleave" in has:
        divided = shape.layers + (ENDS if shape.layers % layout.pipeline else 0)
        chunks = [chunk for chunk in CHUNKS if layout.pipeline * chunk <= divided]
        if len(shape.stacks) == 1:
            chunks = [chunk for chunk in chunks if divided % (layout.pipeline * chunk) == 0]
    kinds = ["none", *(kind for word, kind in RECOMPUTE.items() if word in has)]
    if base.attention != "unfused":
        kinds = [kind for kind in kinds if kind != "selective"]
    shared = layout.data_ranks * base.context > 1
    for recompute in kinds:
        plain = replace(base, recompute=recompute)  # type: ignore[arg-type]
        for interleave in chunks:
            one = replace(plain, interleave=interleave)
            yield one
            if shared and "zero1" in has:
                yield replace(one, sharded=OPTIMIZER)
        if layout.pipeline == 1 or "tensor" not in has:
            yield from _divided(plain, question)


def _divided(base: Setup, question: PlanQuestion) -> Iterator[Setup]:
    """A layout whose gradients or parameters are divided too, over all replicas or those of a node, and its offload."""
    layout, has = base.layout, question.software.has
    whole = replace(layout, replicas=1, shards=layout.replicas)
    shared = layout.replicas > 1
    if "zero2" in has and shared:
        yield replace(base, sharded=GRADIENTS)
    if "offload" in has:
        yield replace(base, sharded=GRADIENTS, offload=True)
    if "zero3" in has and shared:
        yield replace(base, layout=whole, sharded=ALL)
        if "offload" in has:
            yield replace(base, layout=whole, sharded=ALL, offload=True)
    inside = question.machine.node // layout.tensor
    if "hybrid" in has and 1 < inside < layout.replicas and layout.replicas % inside == 0:
        yield replace(base, layout=replace(layout, replicas=layout.replicas // inside, shards=inside), sharded=ALL)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


@dataclass(frozen=True)
class FoundLayouts:
    """The best layouts of a question, how many were tried, and how many of them fit."""

    best: tuple[PlannedLayout, ...]
    tried: int
    fitting: int
    least_bytes: float  # what the smallest layout needs
    least_host_bytes: float  # of a node's host, by the layouts that fit its devices
    capacity: float


def search(question: PlanQuestion, count: int = 5, layout: str = "") -> FoundLayouts:
    """The ``count`` fastest layouts that fit, fastest first; of equally fast ones, those that need least. A ``layout``
    in words is the only one that is tried, and it is predicted whether it fits or not. It counts as one that fits
    unless none is known that needs so much and ran.

    Those with offload follow all others: their time is a bound (costs.HOST_ADAM), and others' are predictions.
    """
    tried, fitting, least, least_host = 0, 0, float("inf"), float("inf")
    most = question.capacity
    ranked: list[tuple[bool, float, float, int, Setup, Breakdown]] = []
    for setup in [question.setup(layout)] if layout else layouts(question):
        tried += 1
        needed = needed_bytes(question.shape, setup, question.software.name)
        least = min(least, needed)
        host = host_bytes(question.shape, setup) * min(question.machine.node, question.ranks)
        if needed > most and not layout:
            continue
        least_host = min(least_host, host)
        if host > question.host_memory and not layout:
            continue
        fitting += not is_impossible(needed, question.room) if layout else needed <= most
        predicted = question.step(setup)
        ranked.append((setup.offload, predicted.total, needed, tried, setup, predicted))
    top = heapq.nsmallest(count, ranked, key=lambda one: one[:4])
    first = top[0][5] if top else None
    best = tuple(_planned(question, setup, needed, predicted, first) for _, _, needed, _, setup, predicted in top)
    return FoundLayouts(best, tried, fitting, least, least_host, most)


def _planned(
    question: PlanQuestion, setup: Setup, needed: float, predicted: Breakdown, first: Breakdown | None
) -> PlannedLayout:
    """A layout as a record: everything in it is predicted. ``first`` is the best one's step."""
    kind = regime_of(question, setup, predicted)
    peak = question.device.dense_flops[peak_name(setup.precision)]
    return PlannedLayout(
        layout=name_of(setup),
        pipeline=setup.layout.pipeline,
        data=setup.layout.data_ranks,
        tensor=setup.layout.tensor,
        interleave=setup.interleave,
        micro_batch=setup.micro_batch,
        accumulation=setup.accumulation,
        recompute=setup.recompute,
        sharded=sorted(setup.sharded),
        offload=setup.offload,
        predicted_bytes=round(needed),
        predicted_chance_to_fit=chance_to_fit(needed, question.room),
        **said(question.shape, setup, peak, predicted, kind),
        loses_by=_why(predicted, first) if first and predicted is not first else "",
    )


def regime_of(question: PlanQuestion, setup: Setup, predicted: Breakdown) -> str:
    """The rows whose errors tell how good a layout's prediction is."""
    kind = kind_of(question.shape, setup, question.nodes_of(setup), predicted)
    return regime(kind, not was_fitted(question.device.name, question.software.name, kind) or unseen(setup))


def _why(slower: Breakdown, first: Breakdown) -> str:
    """The part of the step that grows most."""
    parts, best = slower.parts(), first.parts()
    name = max(parts, key=lambda part: parts[part] - best[part])
    if parts[name] <= best[name]:
        return "equal"
    return f"{name} +{show_ratio((parts[name] - best[name]) / first.total)} of the step"
