"""One layer, or the head, and one micro-batch: seconds of its kernels, its messages and its launches."""

from dataclasses import dataclass, fields
from functools import lru_cache

from perfsuite.predict.time import costs
from perfsuite.predict.time.constants import Constants
from perfsuite.predict.time.message_times import Group, Links, exchange, exposed
from perfsuite.predict.time.setup import Machine, Setup
from perfsuite.predict.time.shape import Shape, Stack

ACTIVATION = 2  # bytes per element of what layers pass on: half precision
CROSS_LAUNCHES = 1.5  # a layer with two attentions has half as many kernels again


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
                latency=machine.network_latency,
                handover=constants.handover,
            ),
            multiprocessors=machine.multiprocessors,
        )


@lru_cache(maxsize=4096)
def layer(stack: Stack, setup: Setup, rates: Rates, constants: Constants) -> Work:
    """One layer and one micro-batch: forward, backward, what is recomputed, and its messages."""
    width, full = setup.layout.tensor, setup.recompute == "full"
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
    heads, kv_heads = max(1, stack.heads // width), max(1, stack.kv_heads // width)
    forward, backward = products(stack, setup, rates, tokens, width)
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
    again = traffic * costs.BACKWARD_ELEMENTWISE
    if setup.eager:
        widths = stack.hidden, stack.feed_forward // width, (heads + kv_heads) * stack.head_width
        traffic, again = (one / rates.memory for one in costs.EAGER[setup.eager].bytes(tokens, *widths))
    forward += core_forward + traffic
    backward += core_backward + again
    if full:
        backward += forward
        if setup.early_stop:
            backward -= _matmul(tokens, stack.hidden, stack.feed_forward // width, rates)
    elif setup.recompute == "selective" and setup.attention == "unfused":
        backward += core_forward
    backward += _collect(stack.layer_parameters / width, setup, rates)
    blocks = 3 if stack.source_hidden else 2
    size = tokens * stack.hidden * ACTIVATION
    messages = blocks * _layer_messages(size, setup, rates, constants, matmuls / blocks, full)
    launch = constants.launch_layer * (CROSS_LAUNCHES if stack.source_hidden else 1.0) * (4 / 3 if full else 1.0)
    gathers = _gathers(stack, setup, rates, constants, forward, backward)
    return Work(forward, backward, messages, gathers, launch)


def _collect(parameters: float, setup: Setup, rates: Rates) -> float:
    """Seconds in which a micro-batch's gradients are added or laid out for a message, and parameters cast or copied."""
    if setup.parameter_bytes_moved is not None:
        return setup.parameter_bytes_moved * parameters / rates.memory
    collect = costs.flatten if "parameters" in setup.sharded else costs.accumulate
    return collect(parameters, setup.gradient_bytes, rates.memory)


def _matmul(m: int, n: int, k: int, rates: Rates) -> float:
    """Seconds of one product at these rates."""
    return costs.matmul(m, n, k, rates.matmul, rates.memory, rates.multiprocessors)


def products(stack: Stack, setup: Setup, rates: Rates, tokens: int, width: int) -> tuple[float, float]:
    """Seconds of a layer's matmuls, forward and backward: one more each for the gradients of input and weight."""
    inner = stack.feed_forward // width
    rows = stack.head_width * stack.heads // width
    pairs = 2 * stack.head_width * max(1, stack.kv_heads // width)
    apart = bool(setup.eager) and stack.gated
    inputs = [rows, pairs // 2, pairs // 2] if apart else [rows + pairs]
    inputs += [inner, inner] if apart else [inner * (2 if stack.gated else 1)]
    shapes = [(tokens, columns, stack.hidden) for columns in inputs]
    shapes += [(tokens, stack.hidden, rows), (tokens, stack.hidden, inner)]
    if stack.source_hidden:
        source = setup.micro_batch * setup.sequence
        shapes += [(tokens, rows, stack.hidden), (source, pairs, stack.source_hidden), (tokens, stack.hidden, rows)]
    forward = sum(_matmul(m, n, k, rates) for m, n, k in shapes)
    return forward, sum(_matmul(m, k, n, rates) + _matmul(k, n, m, rates) for m, n, k in shapes)


def _attention(stack: Stack, setup: Setup, rates: Rates, tokens: int, heads: int) -> tuple[float, float]:
    """Seconds of the attention proper, forward and backward, to itself and to another stack."""
    own = setup.target if stack.target else setup.sequence
    seen = [(own, stack.causal and not setup.masked)] + ([(setup.sequence, False)] if stack.source_hidden else [])
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
    """The vocabulary's product and the cross entropy, divided over the tensor-parallel ranks.

    A classifier has neither. Its embedding is gathered like any. With gathered logits the embedding's output and the
    gradient of the head's input are all-reduced.
    """
    stack = shape.stacks[-1]
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
    columns = -(-shape.vocabulary // setup.layout.tensor)
    gathers = _embedding_gathers(shape, setup, rates, columns)
    backward = 0.0
    if setup.eager and setup.layout.pipeline == 1:
        element = 2 if setup.eager[1] == "half" else 4
        whole, own = shape.vocabulary * shape.hidden, columns * shape.hidden
        backward += costs.embedding_gradient_bytes(whole, own, element, shape.tied) / rates.memory
    if shape.classifies:
        return Work(backward=backward, gathers=gathers)
    forward = _matmul(tokens, columns, shape.hidden, rates)
    backward += _matmul(tokens, shape.hidden, columns, rates)
    backward += _matmul(columns, shape.hidden, tokens, rates)
    traffic = costs.head_bytes(tokens, shape.vocabulary if setup.logits_gathered else columns, setup.logit_bytes)
    traffic /= rates.memory
    if "parameters" not in setup.sharded or setup.parameter_bytes_moved:
        backward += _collect(shape.hidden * columns, setup, rates)
    message = _tensor_message(tokens * shape.hidden * ACTIVATION, setup, rates)
    if setup.logits_gathered:
        message = 2 * _tensor_message(tokens * shape.hidden * setup.tensor_gradient_bytes, setup, rates)
        group = Group(setup.layout.tensor)
        size = tokens * shape.vocabulary * ACTIVATION
        message += exchange("all_gather", size, group, rates.links)
        forward += 2 * size / rates.memory  # what was gathered is joined
    return Work(forward + traffic / 2, backward + traffic / 2, message, gathers)


def _embedding_gathers(shape: Shape, setup: Setup, rates: Rates, columns: int) -> float:
    """Seconds to gather sharded parameters outside of layers, and to scatter their gradients."""
    if "parameters" not in setup.sharded or not setup.embedding_gathered:
        return 0.0
    count = (1 if shape.tied else 2) * shape.hidden * columns
    group = Group(setup.layout.shards, setup.layout.tensor)
    gather = exchange("all_gather", count * setup.parameter_bytes, group, rates.links)
    return gather + exchange("reduce_scatter", count * setup.gradient_bytes, group, rates.links)


def _layer_messages(
    size: float, setup: Setup, rates: Rates, constants: Constants, matmuls: float, recomputed: bool
) -> float:
    """Exposed seconds of the messages of one block, attention or feed-forward, in forward and backward.

    Each pass has an all-reduce, or a gather and a scatter. Megatron and nanotron run backward's beside the matmuls of
    the block's first layer, except for the gather of the second's gradient (arXiv 2205.05198, section 4.2.2). In
    pieces, each runs beside the product that needs or makes it (Wang et al., ASPLOS 2023, doi 10.1145/3567955.3567959).
    """
    whole = _tensor_message(size, setup, rates)
    repeated = whole * (2 if recomputed else 1)
    if not setup.tensor_overlapped:
        gradient = _tensor_message(size * setup.tensor_gradient_bytes / ACTIVATION, setup, rates)
        return repeated + setup.tensor_gradients * gradient
    waited = exchange("all_gather", size, Group(setup.layout.tensor), rates.links) if setup.sequence_parallel else 0.0
    if setup.tensor_pipelined:
        forward = (2 if recomputed else 1) * exposed(matmuls / 2, whole, constants.overlap)
        return forward + exposed(matmuls, whole + waited, constants.overlap)
    return repeated + waited + exposed(matmuls / 2, whole, constants.overlap)


def _tensor_message(size: float, setup: Setup, rates: Rates) -> float:
    """Seconds of one all-reduce of a layer's output, or of the gather and the scatter of sequence parallelism."""
    group = Group(setup.layout.tensor)
    if setup.sequence_parallel:
        gather = exchange("all_gather", size, group, rates.links)
        return gather + exchange("reduce_scatter", size, group, rates.links)
    return exchange("all_reduce", size, group, rates.links)


def _gathers(stack: Stack, setup: Setup, rates: Rates, constants: Constants, forward: float, backward: float) -> float:
    """Exposed seconds of a layer whose parameters are sharded: a gather in each pass, and the gradients' scatter."""
    if "parameters" not in setup.sharded:
        return 0.0
    count = stack.layer_parameters / setup.layout.tensor
    group = Group(setup.layout.shards, setup.layout.tensor)
    pieces = setup.layer_messages
    gather = pieces * exchange("all_gather", count / pieces * setup.parameter_bytes, group, rates.links)
    scatter = pieces * exchange("reduce_scatter", count / pieces * setup.gradient_bytes, group, rates.links)
    beside, hidden = (gather + scatter, 0.0) if setup.prefetched else (scatter, gather)
    return exposed(forward, gather, constants.overlap) + exposed(backward, beside, constants.overlap) + hidden
