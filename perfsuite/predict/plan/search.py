"""Every layout of a model on some hardware that fits in memory, with its predicted time."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.definitions import Device, Layout, Model
from perfsuite.errors import Refused
from perfsuite.predict.overhead import overhead
from perfsuite.predict.plan.layout_memory import capacity, chance_to_fit, host_bytes, needed_bytes
from perfsuite.predict.time.constants import Constants, constants_of, interval, machine_of, regime
from perfsuite.predict.time.setup import Machine, Setup
from perfsuite.predict.time.shape import Shape, shape_of
from perfsuite.predict.time.speed import speed
from perfsuite.predict.time.step import Breakdown, step
from perfsuite.records.prediction import PlannedLayout
from perfsuite.units import show_ratio

OPTIMIZER = frozenset({"optimizer"})
GRADIENTS = frozenset({"optimizer", "gradients"})
ALL = frozenset({"optimizer", "gradients", "parameters"})
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS = (1, 2, 3, 4, 6, 8)
BATCH_TOKENS = 2**22  # usual for large models: 3.2 million for GPT-3 (arXiv 2005.14165, table 2.1), 4 for Llama
HOST_MEMORY = 2.0**40  # of a node: DGX A100 has 1 or 2 TiB


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is planned: a model, where, and the samples of a global batch. ``stack`` is the software."""

    shape: Shape
    device: Device
    machine: Machine
    constants: Constants
    ranks: int
    sequence: int
    target: int
    samples: int
    stack: str
    attention: str = "flash"
    host_memory: float = HOST_MEMORY

    @property
    def room(self) -> float:
        """The bytes that the allocator may reserve."""
        return self.machine.memory_bytes - sum(overhead(self.device, self.ranks).values())

    @property
    def capacity(self) -> float:
        """The bytes that tensors may fill."""
        return capacity(self.room)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return -(-self.ranks // self.machine.node)


def question_of(
    model: Model,
    hardware: Hardware,
    samples: int,
    stack: str,
    network: float | None = None,
    host_memory: float = HOST_MEMORY,
    latency: float = 1.0,
) -> Question:
    """The question of a catalog's model and its lengths. Raises Refused if it has no closed form there.

    ``network`` is a device's share in bytes per second, ``latency`` a factor of NCCL's latencies between nodes,
    ``host_memory`` a node's bytes.
    """
    if hardware.device is None:
        raise Refused("No time is predicted for a CPU: name a device and its nodes, e.g. --hardware a100_80g_x8n16.")
    newer = (hardware.device.compute_capability or 0) >= 8
    return Question(
        shape=shape_of(model),
        device=hardware.device,
        machine=machine_of(hardware.device, network, hardware.ranks, latency),
        constants=constants_of(hardware.device, stack),
        ranks=hardware.world_size,
        sequence=model.workload.sequence_length,
        target=model.workload.target_length or 0,
        samples=samples,
        stack=stack,
        host_memory=host_memory,
        attention="flash" if newer else "unfused",
    )


def layouts(question: Question) -> Iterator[Setup]:
    """Every setup that divides heads, layers, ranks and the batch without a rest."""
    shape, ranks = question.shape, question.ranks
    heads = min(stack.kv_heads for stack in shape.stacks)
    stages = _divisors(shape.layers) if len(shape.stacks) == 1 else [1]
    for tensor in (one for one in _divisors(heads) if one <= question.machine.node and ranks % one == 0):
        for pipeline in (one for one in stages if ranks % (tensor * one) == 0):
            replicas = ranks // (tensor * pipeline)
            if question.samples % replicas:
                continue
            for micro in (one for one in MICRO_BATCHES if (question.samples // replicas) % one == 0):
                base = Setup(
                    layout=Layout(pipeline=pipeline, replicas=replicas, tensor=tensor),
                    sequence=question.sequence,
                    target=question.target,
                    micro_batch=micro,
                    accumulation=question.samples // (replicas * micro),
                    sequence_parallel=tensor > 1,
                    overlapped=True,
                    attention=question.attention,  # type: ignore[arg-type]
                    precision="bf16" if question.attention == "flash" else "fp16",
                    gradient_bytes=4 if question.attention == "flash" else 2,  # bf16 is reduced in fp32
                )
                yield from _variants(base, shape)


def _variants(base: Setup, shape: Shape) -> Iterator[Setup]:
    """A layout with every recomputation, interleaving, sharding and offload that it can have."""
    layout = base.layout
    chunks = [1]
    if layout.pipeline > 1 and base.accumulation % layout.pipeline == 0:
        chunks = [one for one in CHUNKS if (shape.layers // layout.pipeline) % one == 0]
    kinds = ["none", "full"] + (["selective"] if base.attention == "unfused" else [])
    for recompute in kinds:
        for interleave in chunks:
            plain = replace(base, recompute=recompute, interleave=interleave)  # type: ignore[arg-type]
            yield plain
            if layout.replicas > 1:
                yield replace(plain, sharded=OPTIMIZER)
        if layout.pipeline == 1:
            one = replace(base, recompute=recompute)  # type: ignore[arg-type]
            yield replace(one, sharded=GRADIENTS, offload=True)
            if layout.replicas > 1:
                whole = replace(layout, replicas=1, shards=layout.replicas)
                yield replace(one, layout=whole, sharded=ALL)
                yield replace(one, layout=whole, sharded=ALL, offload=True)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def samples_of(samples: int | None, sequence: int, ranks: int) -> int:
    """The global batch: as asked, or 4 Mi tokens, rounded up to a multiple of the ranks."""
    return samples or -(-max(1, BATCH_TOKENS // sequence) // ranks) * ranks


@dataclass(frozen=True)
class Found:
    """The best layouts of a question, how many were tried, and how many of them fit."""

    best: tuple[PlannedLayout, ...]
    tried: int
    fitting: int
    least_bytes: float  # what the smallest layout needs
    least_host_bytes: float  # of a node's host, by the layouts that fit its devices
    capacity: float


def search(question: Question, count: int = 5) -> Found:
    """The ``count`` fastest layouts that fit, fastest first; of equally fast ones, those that need least.

    Those with offload follow all others: their time is a bound (costs.HOST_ADAM), and others' are predictions.
    """
    tried, fitting, least, least_host = 0, 0, float("inf"), float("inf")
    most = question.capacity
    ranked: list[tuple[bool, float, float, int, Setup, Breakdown]] = []
    for setup in layouts(question):
        tried += 1
        needed = needed_bytes(question.shape, setup, question.stack)
        least = min(least, needed)
        host = host_bytes(question.shape, setup) * min(question.machine.node, question.ranks)
        if needed > most:
            continue
        least_host = min(least_host, host)
        if host > question.host_memory:
            continue
        fitting += 1
        predicted = step(question.shape, setup, question.machine, question.constants)
        ranked.append((setup.offload, predicted.total, needed, tried, setup, predicted))
    top = heapq.nsmallest(count, ranked, key=lambda one: one[:4])
    first = top[0][5] if top else None
    best = tuple(_planned(question, setup, needed, predicted, first) for _, _, needed, _, setup, predicted in top)
    return Found(best, tried, fitting, least, least_host, most)


def _planned(
    question: Question, setup: Setup, needed: float, predicted: Breakdown, first: Breakdown | None
) -> PlannedLayout:
    """A layout as a record: everything in it is predicted. ``first`` is the best one's step."""
    unlike = setup.offload or len(question.shape.stacks) > 1  # no fitted row has either
    stack = "" if unlike else question.stack
    kind = regime(question.device, stack, question.nodes, predicted.launch / predicted.total)
    low, high = interval(predicted.total, kind)
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
        predicted_step_seconds=predicted.total,
        low_seconds=low,
        high_seconds=high,
        regime=kind,
        predicted_parts=predicted.parts(),
        **speed(question.shape, setup, question.machine.flops, predicted.total),
        loses_by=_why(predicted, first) if first and predicted is not first else "",
    )


def _why(slower: Breakdown, first: Breakdown) -> str:
    """The part of the step that grows most."""
    parts, best = slower.parts(), first.parts()
    name = max(parts, key=lambda part: parts[part] - best[part])
    if parts[name] <= best[name]:
        return "equal"
    return f"{name} +{show_ratio((parts[name] - best[name]) / first.total)} of the step"


def name_of(setup: Setup) -> str:
    """A layout in one word: ``tp8 pp12 dp4 v2 b1 ckpt zero1``."""
    layout = setup.layout
    words = [f"tp{layout.tensor}", f"pp{layout.pipeline}", f"dp{layout.data_ranks}"]
    words += [f"v{setup.interleave}"] if setup.interleave > 1 else []
    words.append(f"b{setup.micro_batch}")
    words += {"none": [], "full": ["ckpt"], "selective": ["ckpt_selective"]}[setup.recompute]
    words += {frozenset(): [], OPTIMIZER: ["zero1"], GRADIENTS: ["zero2"], ALL: ["zero3"]}[setup.sharded]
    words += ["offload"] if setup.offload else []
    return " ".join(words)
