"""The closed form: a Shape, a Setup and a Machine give the seconds of one optimizer step, as a Breakdown.

A stage's micro-batch takes its kernels, its exposed tensor-parallel messages and its sends; or, if that is longer, the
time in which the host launches them. 1F1B repeats it and adds the bubble. Gradients, optimizer and offload follow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.head import head
from perfsuite.features.predict.time.held import stage_layers, trained
from perfsuite.features.predict.time.layer import layer
from perfsuite.features.predict.time.message_times import MessageGroup, exchange, exposed, point_to_point
from perfsuite.features.predict.time.pipeline_fill import bubble
from perfsuite.features.predict.time.setup import MachineSetup, Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.work import ACTIVATION, Rates, Work

MEETING = 6
BACKWARD = 2 / 3  # of a micro-batch's time: two products of a matmul's three


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Predicted seconds of one optimizer step on the slowest rank; ``total`` is their sum.

    ``compute``: kernels, recomputation included. Messages are what computation does not hide: ``tensor`` (all-reduces
    in layers), ``experts`` (tokens to experts and back), ``sends`` (between stages), ``gathers`` (of parameters),
    ``data`` (gradients, and parameters after the step). ``launch``: what the host needs longer than the device.
    ``bubble``: waiting for other stages. ``waiting``: for the slowest of equal ranks.
    """

    compute: float
    tensor: float = 0.0
    experts: float = 0.0
    sends: float = 0.0
    gathers: float = 0.0
    launch: float = 0.0
    bubble: float = 0.0
    data: float = 0.0
    optimizer: float = 0.0
    offload: float = 0.0
    waiting: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def step(shape: Shape, setup: Setup, machine: MachineSetup, constants: Constants) -> Breakdown:
    """The predicted seconds of one optimizer step."""
    rates = Rates.of(machine, constants)
    stages = stage_works(shape, setup, rates, constants)
    sends, host = _between(shape, setup, rates, constants, stages)
    times = [both(work.device + send, work.launch + host) for work, send in zip(stages, sends, strict=True)]
    slowest = max(range(len(times)), key=times.__getitem__)
    work, send, count = stages[slowest], sends[slowest], setup.accumulation
    optimizer, offload = _optimizer(shape, setup, machine, rates)
    filling = bubble(times, setup.interleave)
    return Breakdown(
        compute=count * (work.forward + work.backward),
        tensor=count * work.tensor,
        experts=count * work.experts,
        gathers=count * work.gathers,
        sends=count * send,
        launch=count * (times[slowest] - work.device - send),
        bubble=filling,
        data=_replica_messages(shape, setup, rates, constants, times[slowest]),
        optimizer=optimizer,
        offload=offload,
        waiting=late(-(-setup.ranks // machine.node), constants) * (count * times[slowest] + filling),
    )


def both(device: float, host: float) -> float:
    """Seconds of a micro-batch that the device and the host each need so many for.

    It takes the longer of both, and more where they are alike: the host is ahead of some kernels, and behind others. If
    both need as long, it is an eighth more (``MEETING``: seen on vTrain's 144 rows of one node).
    """
    longer, shorter = max(device, host), min(device, host)
    return longer * (1 + (shorter / longer) ** MEETING) ** (1 / MEETING) if longer else 0.0


def late(nodes: int, constants: Constants) -> float:
    """By what share the slowest of equal nodes takes longer than the mean one.

    The largest of n independent normal times exceeds their mean by about √(2 ln n) deviations; ``constants.jitter`` is
    the deviation of a node's step.
    """
    return constants.jitter * math.sqrt(2 * math.log(nodes))


def stage_times(shape: Shape, setup: Setup, machine: MachineSetup, constants: Constants) -> list[dict[str, float]]:
    """Seconds of one micro-batch in every stage: forward, backward, and the parts of a Breakdown that it has too."""
    rates = Rates.of(machine, constants)
    stages = stage_works(shape, setup, rates, constants)
    sends, host = _between(shape, setup, rates, constants, stages)
    return [
        {
            "forward": work.forward,
            "backward": work.backward,
            "tensor": work.tensor,
            "experts": work.experts,
            "gathers": work.gathers,
            "sends": send,
            "launch": both(work.device + send, work.launch + host) - work.device - send,
        }
        for work, send in zip(stages, sends, strict=True)
    ]


def stage_works(shape: Shape, setup: Setup, rates: Rates, constants: Constants) -> list[Work]:
    """The work of one micro-batch in every stage; the last one has the head. Layers of several kinds, and the head with
    them, are divided by their cost, as people lay out such models by hand.
    """
    works = [layer(stack, setup, rates, constants) for stack in shape.stacks]
    last = head(shape, setup, rates)
    last = last.plus(works[-1].times(shape.extra))
    if setup.layout.pipeline == 1 or len(works) > 1:
        whole = last
        for stack, work in zip(shape.stacks, works, strict=True):
            whole = whole.plus(work.times(stack.layers))
        return [whole.times(1 / setup.layout.pipeline)] * setup.layout.pipeline
    per_layer, counts = works[-1], stage_layers(shape, setup)
    return [per_layer.times(count) for count in counts[:-1]] + [per_layer.times(counts[-1]).plus(last)]


def _between(
    shape: Shape, setup: Setup, rates: Rates, constants: Constants, stages: Sequence[Work]
) -> tuple[list[float], float]:
    """Seconds that one micro-batch's sends need: of every stage's device, and of its host.

    A stage exchanges with the one before it and with the one behind it, but both ends have only one such neighbour,
    unless a rank has several chunks. Then a send can run beside another chunk's computation (Megatron's
    overlap_p2p_comm).
    """
    if setup.layout.pipeline == 1:
        return [0.0], 0.0
    send = _send(shape, setup, rates)
    if setup.sends_overlapped and setup.interleave > 1:
        send = exposed(min(work.device for work in stages), send, constants.overlap)
    sends = [send] * len(stages)
    if setup.interleave == 1:
        sends[0] = sends[-1] = send / 2
    return sends, constants.launch_stage


def _send(shape: Shape, setup: Setup, rates: Rates) -> float:
    """Seconds in which a stage waits for one micro-batch's sends: hidden states on, gradients back, of each chunk.

    Tensor-parallel ranks send a share each and gather it in their node (arXiv 2104.04473, section 4.1).
    """
    size = setup.micro_batch * setup.sequence // setup.context * shape.hidden * ACTIVATION
    width = setup.layout.tensor
    stride = width * setup.context * setup.layout.data_ranks
    once = point_to_point(size / width, MessageGroup(setup.layout.pipeline, stride), rates.links)
    if width > 1 and not setup.sequence_parallel:
        once += exchange("all_gather", size, MessageGroup(width), rates.links)
    return 2 * setup.interleave * once


def _replica_messages(shape: Shape, setup: Setup, rates: Rates, constants: Constants, micro_batch: float) -> float:
    """Exposed seconds of the messages between replicas; ``micro_batch`` are the slowest stage's seconds for one.

    Gradients are reduced beside the last micro-batch's backward, two thirds of its seconds; updated parameters are
    gathered beside the next step's first forward. With chunks, those of a rank's last chunk are complete as soon as it
    has done the last micro-batches, one per stage. These then pass the other chunks (arXiv 2104.04473, figure 4).
    """
    layout = setup.layout
    dense, experts = trained(shape, setup)
    scatter, gather = _gradients(dense, setup, rates, MessageGroup(layout.data_ranks * setup.context, layout.tensor))
    if experts:
        own = setup.experts * setup.expert_tensor
        others = max(1, layout.data_ranks * setup.context * layout.tensor // own)
        more = _gradients(experts, setup, rates, MessageGroup(others, own))
        scatter, gather = scatter + more[0], gather + more[1]
    if setup.overlapped:
        beside = micro_batch * (layout.pipeline * (setup.interleave - 1) + 1) / setup.interleave
        scatter = exposed(beside * BACKWARD, scatter, constants.overlap)
        gather = exposed(beside * (1 - BACKWARD), gather, constants.overlap)
    times = setup.accumulation if "gradients" in setup.sharded and "parameters" not in setup.sharded else 1
    messages = scatter * times + gather  # ZeRO-2 keeps no whole gradients, so it reduces those of every micro-batch
    if layout.pipeline > 1 and shape.tied:  # first and last stage have a copy each of the embedding
        size = shape.vocabulary * shape.hidden / layout.tensor * setup.gradient_bytes
        ends = MessageGroup(2, layout.tensor * setup.context * layout.data_ranks * (layout.pipeline - 1))
        messages += exchange("all_reduce", size, ends, rates.links)
    if setup.persistent:
        size, shards = shape.hidden * setup.parameter_bytes, MessageGroup(setup.shards, layout.tensor)
        messages += setup.persistent * exchange("all_gather", size, shards, rates.links)
    return messages


def _optimizer(shape: Shape, setup: Setup, machine: MachineSetup, rates: Rates) -> tuple[float, float]:
    """Seconds of the optimizer on the device, and on the host with the copies there and back: one of both is 0."""
    dense, experts = trained(shape, setup)
    own_state = dense + experts
    if "optimizer" in setup.sharded:
        own_state = dense / setup.shards + experts / setup.expert_shards
    if setup.offload:
        devices = min(machine.node, setup.ranks)
        return 0.0, costs.offload(own_state, machine.host_bandwidth, setup.accumulation, devices)
    return costs.optimizer(own_state, rates.memory, setup.optimizer_bytes), 0.0


def _gradients(count: float, setup: Setup, rates: Rates, group: MessageGroup) -> tuple[float, float]:
    """Seconds of the messages of ``group``, which has other data: what reduces gradients, what gathers parameters.

    Where state is divided over a part of the ranks, the parts are reduced over the others.
    """
    layout, links, size = setup.layout, rates.links, count * setup.gradient_bytes
    partial = layout.shards > 1
    inner = MessageGroup(max(1, group.ranks // layout.replicas), group.stride) if partial else group
    outer = MessageGroup(layout.replicas if partial else 1, group.stride * inner.ranks)
    between = exchange("all_reduce", size / inner.ranks, outer, links)
    if "parameters" in setup.sharded:  # the shards' scatter was in every micro-batch; replicas of shards remain
        return between, 0.0
    pieces = setup.gradient_messages

    def reduced(kind: str) -> float:
        return pieces * exchange(kind, size / pieces, inner, links)

    if "optimizer" in setup.sharded:
        gather = exchange("all_gather", count * setup.parameter_bytes, inner, links)
        return reduced("reduce_scatter" if setup.scattered else "all_reduce") + between, gather
    return reduced("all_reduce") + between, 0.0
