"""The closed form: a Shape, a Setup and a Machine give the seconds of one optimizer step, as a Breakdown.

A stage's micro-batch takes its kernels, its exposed tensor-parallel messages and its sends; or, if that is longer, the
time in which the host launches them. 1F1B repeats it and adds the bubble. Gradients, optimizer and offload follow.
"""

from dataclasses import dataclass, fields
from functools import lru_cache

from perfsuite.predict.time import costs
from perfsuite.predict.time.communication import Group, Links, collective, exposed, point_to_point
from perfsuite.predict.time.constants import Constants
from perfsuite.predict.time.pipeline import balanced_stages, bubble, even_stages
from perfsuite.predict.time.setup import Machine, Setup
from perfsuite.predict.time.shape import Shape, Stack

ACTIVATION = 2  # bytes per element of what layers pass on: half precision
BACKWARD = 2 / 3  # of a micro-batch's time: two products of a matmul's three
CROSS_LAUNCHES = 1.5  # a layer with two attentions has half as many kernels again


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Predicted seconds of one optimizer step on the slowest rank; ``total`` is their sum.

    ``compute``: kernels, recomputation included. Messages are what computation does not hide: ``tensor`` (all-reduces
    in layers), ``sends`` (between stages), ``gathers`` (of sharded parameters), ``data`` (gradients, and parameters
    after the step). ``launch``: what the host needs longer than the device. ``bubble``: waiting for other stages.
    """

    compute: float
    tensor: float = 0.0
    sends: float = 0.0
    gathers: float = 0.0
    launch: float = 0.0
    bubble: float = 0.0
    data: float = 0.0
    optimizer: float = 0.0
    offload: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Work:
    """Seconds of one micro-batch: kernels, exposed messages, and the host's time to launch them."""

    forward: float = 0.0
    backward: float = 0.0
    tensor: float = 0.0
    gathers: float = 0.0
    launch: float = 0.0

    def times(self, count: float) -> "Work":
        """The work of ``count`` such layers."""
        return Work(*(getattr(self, field.name) * count for field in fields(self)))

    def plus(self, other: "Work") -> "Work":
        """The work of both."""
        return Work(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def device(self) -> float:
        """Seconds on the device."""
        return self.forward + self.backward + self.tensor + self.gathers

    @property
    def seconds(self) -> float:
        """Seconds on device or host, whichever needs longer."""
        return max(self.device, self.launch)


@dataclass(frozen=True)
class Rates:
    """What a machine reaches with these constants: FLOP/s of matmuls and attention, bytes per second, and links."""

    matmul: float
    attention: float
    attention3: float
    memory: float
    links: Links
    multiprocessors: int

    @classmethod
    def of(cls, machine: Machine, constants: Constants) -> "Rates":
        """A machine's rates times the constants."""
        return cls(
            matmul=machine.matmul_flops * constants.matmul,
            attention=machine.flops * constants.attention,
            attention3=machine.flops * constants.attention3,
            memory=machine.memory_bandwidth * constants.memory,
            links=Links(
                link=machine.link_bandwidth * constants.link,
                network=machine.network_bandwidth * constants.network,
                node=machine.node,
                start=constants.start,
                hop=constants.hop,
            ),
            multiprocessors=machine.multiprocessors,
        )


def step(shape: Shape, setup: Setup, machine: Machine, constants: Constants) -> Breakdown:
    """The predicted seconds of one optimizer step."""
    rates = Rates.of(machine, constants)
    stages = stage_works(shape, setup, rates, constants)
    wide = setup.layout.pipeline > 1
    send = _send(shape, setup, rates) if wide else 0.0
    host = constants.launch_stage if wide else 0.0
    times = [max(work.device + send, work.launch + host) for work in stages]
    slowest = max(range(len(times)), key=times.__getitem__)
    work, count = stages[slowest], setup.accumulation
    data, optimizer, offload = _update(shape, setup, machine, rates, constants, times[slowest])
    return Breakdown(
        compute=count * (work.forward + work.backward),
        tensor=count * work.tensor,
        gathers=count * work.gathers,
        sends=count * send,
        launch=count * max(0.0, work.launch + host - work.device - send),
        bubble=bubble(times, setup.interleave),
        data=data,
        optimizer=optimizer,
        offload=offload,
    )


def stage_times(shape: Shape, setup: Setup, machine: Machine, constants: Constants) -> list[dict[str, float]]:
    """Seconds of one micro-batch in every stage: forward, backward, and the parts of a Breakdown that it has too."""
    rates = Rates.of(machine, constants)
    wide = setup.layout.pipeline > 1
    send = _send(shape, setup, rates) if wide else 0.0
    host = constants.launch_stage if wide else 0.0
    return [
        {
            "forward": work.forward,
            "backward": work.backward,
            "tensor": work.tensor,
            "gathers": work.gathers,
            "sends": send,
            "launch": max(0.0, work.launch + host - work.device - send),
        }
        for work in stage_works(shape, setup, rates, constants)
    ]


def stage_works(shape: Shape, setup: Setup, rates: Rates, constants: Constants) -> list[Work]:
    """The work of one micro-batch in every stage. A pipeline has one kind of layers; the last stage has the head."""
    works = [layer(stack, setup, rates, constants) for stack in shape.stacks]
    last = head(shape, setup, rates)
    if setup.layout.pipeline == 1:
        whole = last
        for stack, work in zip(shape.stacks, works, strict=True):
            whole = whole.plus(work.times(stack.layers))
        return [whole]
    per_layer = works[-1]
    stages = setup.layout.pipeline
    if setup.balanced:
        weight = shape.hidden * shape.vocabulary / shape.stacks[-1].layer_parameters
        counts: tuple[float, ...] = balanced_stages(shape.layers, weight, stages)
    else:
        counts = even_stages(shape.layers, stages)
    return [per_layer.times(count) for count in counts[:-1]] + [per_layer.times(counts[-1]).plus(last)]


@lru_cache(maxsize=4096)
def layer(stack: Stack, setup: Setup, rates: Rates, constants: Constants) -> Work:
    """One layer and one micro-batch: forward, backward, what is recomputed, and its messages."""
    width, full = setup.layout.tensor, setup.recompute == "full"
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
    heads, kv_heads = max(1, stack.heads // width), max(1, stack.kv_heads // width)
    forward, backward = _products(stack, setup, rates, tokens, width)
    matmuls = backward
    core_forward, core_backward = _attention(stack, setup, rates, tokens, heads)
    outside, inside = costs.elementwise_bytes(
        tokens,
        stack.hidden,
        (heads + kv_heads) * stack.head_width,
        stack.feed_forward // width,
        stack.gated,
        setup.dropout,
    )
    traffic = (outside / (width if setup.sequence_parallel else 1) + inside) / rates.memory * constants.traffic
    forward += core_forward + traffic
    backward += core_backward + traffic * costs.BACKWARD_ELEMENTWISE
    if full:
        backward += forward
        if setup.early_stop:
            backward -= _matmul(tokens, stack.hidden, stack.feed_forward // width, rates)
    elif setup.recompute == "selective" and setup.attention == "unfused":
        backward += core_forward
    collect = costs.flatten if "parameters" in setup.sharded else costs.accumulate
    backward += collect(stack.layer_parameters / width, setup.gradient_bytes, rates.memory)
    blocks = 3 if stack.source_hidden else 2
    size = tokens * stack.hidden * ACTIVATION
    messages = blocks * _layer_messages(size, setup, rates, constants, matmuls / blocks, full)
    launch = constants.launch_layer * (CROSS_LAUNCHES if stack.source_hidden else 1.0) * (4 / 3 if full else 1.0)
    gathers = _gathers(stack, setup, rates, constants, forward, backward)
    return Work(forward, backward, messages, gathers, launch)


def _matmul(m: int, n: int, k: int, rates: Rates) -> float:
    """Seconds of one product at these rates."""
    return costs.matmul(m, n, k, rates.matmul, rates.memory, rates.multiprocessors)


def _products(stack: Stack, setup: Setup, rates: Rates, tokens: int, width: int) -> tuple[float, float]:
    """Seconds of a layer's matmuls, forward and backward: one more each for the gradients of input and weight."""
    inner = stack.feed_forward // width
    rows = stack.head_width * stack.heads // width
    pairs = 2 * stack.head_width * max(1, stack.kv_heads // width)
    shapes = [(tokens, rows + pairs, stack.hidden), (tokens, stack.hidden, rows)]
    shapes += [(tokens, inner * (2 if stack.gated else 1), stack.hidden), (tokens, stack.hidden, inner)]
    if stack.source_hidden:
        source = setup.micro_batch * setup.sequence
        shapes += [(tokens, rows, stack.hidden), (source, pairs, stack.source_hidden), (tokens, stack.hidden, rows)]
    forward = sum(_matmul(m, n, k, rates) for m, n, k in shapes)
    return forward, sum(_matmul(m, k, n, rates) + _matmul(k, n, m, rates) for m, n, k in shapes)


def _attention(stack: Stack, setup: Setup, rates: Rates, tokens: int, heads: int) -> tuple[float, float]:
    """Seconds of the attention proper, forward and backward, to itself and to another stack."""
    own = setup.target if stack.target else setup.sequence
    seen = [(own, stack.causal)] + ([(setup.sequence, False)] if stack.source_hidden else [])
    forward = backward = 0.0
    for keys, causal in seen:
        if setup.attention != "unfused":
            rate = rates.attention if setup.attention == "flash" else rates.attention3
            once = costs.flash_attention(tokens, keys, heads * stack.head_width, causal, rate)
            forward, backward = forward + once, backward + once * costs.BACKWARD_FLASH
        else:
            sizes = (tokens, keys, heads, stack.head_width, rates.matmul, rates.memory)
            forward += costs.unfused_attention(*sizes, backward=False, dropout=setup.dropout)
            backward += costs.unfused_attention(*sizes, backward=True, dropout=setup.dropout)
    return forward, backward


def head(shape: Shape, setup: Setup, rates: Rates) -> Work:
    """The vocabulary's product and the cross entropy, divided over the tensor-parallel ranks."""
    stack = shape.stacks[-1]
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
    columns = -(-shape.vocabulary // setup.layout.tensor)

    forward = _matmul(tokens, columns, shape.hidden, rates)
    backward = _matmul(tokens, shape.hidden, columns, rates)
    backward += _matmul(columns, shape.hidden, tokens, rates)
    traffic = costs.head_bytes(tokens, columns) / rates.memory
    if "parameters" not in setup.sharded:
        backward += costs.accumulate(shape.hidden * columns, setup.gradient_bytes, rates.memory)
    message = _tensor_message(tokens * shape.hidden * ACTIVATION, setup, rates)
    gathers = 0.0
    if "parameters" in setup.sharded and setup.embedding_gathered:
        count = (1 if shape.tied else 2) * shape.hidden * columns
        group = Group(setup.layout.shards, setup.layout.tensor)
        gathers = collective("all_gather", count * setup.parameter_bytes, group, rates.links)
        gathers += collective("reduce_scatter", count * setup.gradient_bytes, group, rates.links)
    return Work(forward + traffic / 2, backward + traffic / 2, message, gathers)


def _layer_messages(
    size: float, setup: Setup, rates: Rates, constants: Constants, matmuls: float, recomputed: bool
) -> float:
    """Exposed seconds of the messages of one block, attention or feed-forward, in forward and backward.

    Each pass has an all-reduce, or a gather and a scatter. Megatron and nanotron run backward's beside the matmuls of
    the block's first layer, except for the gather of the second's gradient (arXiv 2205.05198, section 4.2.2).
    """
    whole = _tensor_message(size, setup, rates)
    repeated = whole * (2 if recomputed else 1)
    if not setup.tensor_overlapped:
        return repeated + whole
    waited = collective("all_gather", size, Group(setup.layout.tensor), rates.links) if setup.sequence_parallel else 0.0
    return repeated + waited + exposed(matmuls / 2, whole, constants.overlap)


def _tensor_message(size: float, setup: Setup, rates: Rates) -> float:
    """Seconds of one all-reduce of a layer's output, or of the gather and the scatter of sequence parallelism."""
    group = Group(setup.layout.tensor)
    if setup.sequence_parallel:
        gather = collective("all_gather", size, group, rates.links)
        return gather + collective("reduce_scatter", size, group, rates.links)
    return collective("all_reduce", size, group, rates.links)


def _gathers(stack: Stack, setup: Setup, rates: Rates, constants: Constants, forward: float, backward: float) -> float:
    """Exposed seconds of a layer whose parameters are sharded: a gather in each pass, and the gradients' scatter."""
    if "parameters" not in setup.sharded:
        return 0.0
    count = stack.layer_parameters / setup.layout.tensor
    group = Group(setup.layout.shards, setup.layout.tensor)
    gather = collective("all_gather", count * setup.parameter_bytes, group, rates.links)
    scatter = collective("reduce_scatter", count * setup.gradient_bytes, group, rates.links)
    beside, hidden = (gather + scatter, 0.0) if setup.prefetched else (scatter, gather)
    return exposed(forward, gather, constants.overlap) + exposed(backward, beside, constants.overlap) + hidden


def _send(shape: Shape, setup: Setup, rates: Rates) -> float:
    """Seconds in which a stage waits for one micro-batch's sends: hidden states on, gradients back, of each chunk.

    Tensor-parallel ranks send a share each and gather it in their node (arXiv 2104.04473, section 4.1).
    """
    size = setup.micro_batch * setup.sequence * shape.hidden * ACTIVATION
    width = setup.layout.tensor
    once = point_to_point(size / width, Group(setup.layout.pipeline, width * setup.layout.data_ranks), rates.links)
    if width > 1 and not setup.sequence_parallel:
        once += collective("all_gather", size, Group(width), rates.links)
    return 2 * setup.interleave * once


def _update(
    shape: Shape, setup: Setup, machine: Machine, rates: Rates, constants: Constants, micro_batch: float
) -> tuple[float, float, float]:
    """Seconds after the last micro-batch: exposed messages between replicas, the optimizer, and its offload.

    Gradients are reduced beside the last micro-batch's backward, two thirds of its seconds; updated parameters are
    gathered beside the next step's first forward.
    """
    layout = setup.layout
    count = held_parameters(shape, setup)
    scatter, gather = _gradients(count, setup, rates)
    if setup.overlapped:
        scatter = exposed(micro_batch * BACKWARD, scatter, constants.overlap)
        gather = exposed(micro_batch * (1 - BACKWARD), gather, constants.overlap)
    times = setup.accumulation if "gradients" in setup.sharded and "parameters" not in setup.sharded else 1
    messages = scatter * times + gather  # ZeRO-2 keeps no whole gradients, so it reduces those of every micro-batch
    if layout.pipeline > 1 and shape.tied:  # first and last stage have a copy each of the embedding
        size = shape.vocabulary * shape.hidden / layout.tensor * setup.gradient_bytes
        ends = Group(2, layout.tensor * layout.data_ranks * (layout.pipeline - 1))
        messages += collective("all_reduce", size, ends, rates.links)
    own = count / setup.shards if "optimizer" in setup.sharded else count
    if setup.offload:
        devices = min(machine.node, setup.ranks)
        return messages, 0.0, costs.offload(own, machine.host_bandwidth, setup.accumulation, devices)
    return messages, costs.optimizer(own, rates.memory), 0.0


def _gradients(count: float, setup: Setup, rates: Rates) -> tuple[float, float]:
    """Seconds of the messages between replicas: what reduces gradients, and what gathers updated parameters."""
    layout, links = setup.layout, rates.links
    size = count * setup.gradient_bytes
    if "parameters" in setup.sharded:  # the shards' scatter was in every micro-batch; replicas of shards remain
        replicas = Group(layout.replicas, layout.tensor * layout.shards)
        return collective("all_reduce", size / layout.shards, replicas, links), 0.0
    group = Group(layout.data_ranks, layout.tensor)
    if "optimizer" in setup.sharded:
        gather = collective("all_gather", count * setup.parameter_bytes, group, links)
        return collective("reduce_scatter" if setup.scattered else "all_reduce", size, group, links), gather
    return collective("all_reduce", size, group, links), 0.0


def held_parameters(shape: Shape, setup: Setup) -> float:
    """Parameters of the fullest stage's tensor-parallel rank, before any sharding over replicas."""
    layout = setup.layout
    if layout.pipeline == 1:
        return shape.parameters / layout.tensor
    layers = shape.layers / layout.pipeline * shape.stacks[-1].layer_parameters
    return (layers + shape.hidden * shape.vocabulary) / layout.tensor
