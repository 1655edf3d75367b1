"""The head: the vocabulary's product, the cross entropy, and what of parameters lies outside of layers."""

from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.cross_entropy import head_bytes
from perfsuite.features.predict.time.message_times import MessageGroup, exchange
from perfsuite.features.predict.time.products import half
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.tensor_messages import tensor_message
from perfsuite.features.predict.time.work import ACTIVATION, Rates, Work


def head(shape: Shape, setup: Setup, rates: Rates) -> Work:
    """The vocabulary's product and the cross entropy, divided over the tensor-parallel ranks.

    A classifier has neither. Its embedding is gathered like any. With gathered logits the embedding's output and the
    gradient of the head's input are all-reduced. Each extra head is another product, after one of 2h by h.
    """
    stack = shape.stacks[-1]
    tokens = setup.tokens(stack)
    columns = -(-shape.vocabulary // setup.layout.tensor)
    gathers = _embedding_gathers(shape, setup, rates, columns)
    backward = 0.0
    if setup.eager and setup.layout.pipeline == 1 and not setup.adapter:
        element = 2 if setup.eager[1] == "half" else 4
        whole, own = shape.vocabulary * shape.hidden, columns * shape.hidden
        backward += costs.embedding_gradient_bytes(whole, own, element, shape.tied) / rates.memory
    if shape.classifies:
        return Work(backward=backward, gathers=gathers)
    forward = half(tokens, columns, shape.hidden, rates)
    backward += half(tokens, shape.hidden, columns, rates)
    backward += 0.0 if setup.adapter else half(columns, shape.hidden, tokens, rates)
    traffic = head_bytes(tokens, shape.vocabulary if setup.logits_gathered else columns, setup.cross_entropy)
    traffic /= rates.memory
    if not setup.adapter and ("parameters" not in setup.sharded or setup.parameter_bytes_moved):
        backward += collect(shape.hidden * columns, setup, rates)
    message = tensor_message(tokens * shape.hidden * ACTIVATION, setup, rates)
    if setup.logits_gathered:
        message = 2 * tensor_message(tokens * shape.hidden * setup.tensor_gradient_bytes, setup, rates)
        group = MessageGroup(setup.layout.tensor)
        size = tokens * shape.vocabulary * ACTIVATION
        message += exchange("all_gather", size, group, rates.links)
        forward += 2 * size / rates.memory  # what was gathered is joined
    once = Work(forward + traffic / 2, backward + traffic / 2, message, gathers)
    if not shape.extra:
        return once
    joined = half(tokens, shape.hidden // setup.layout.tensor, 2 * shape.hidden, rates)
    return once.plus(once.times(shape.extra)).plus(Work(joined * shape.extra, 2 * joined * shape.extra))


def collect(parameters: float, setup: Setup, rates: Rates) -> float:
    """Seconds in which a micro-batch's gradients are added or laid out for a message, and parameters cast or copied."""
    if setup.parameter_bytes_moved is not None:
        return setup.parameter_bytes_moved * parameters / rates.memory
    moved = costs.flatten if "parameters" in setup.sharded else costs.accumulate
    return moved(parameters, setup.gradient_bytes, rates.memory)


def _embedding_gathers(shape: Shape, setup: Setup, rates: Rates, columns: int) -> float:
    """Seconds to gather sharded parameters outside of layers, and to scatter their gradients."""
    if "parameters" not in setup.sharded or not setup.embedding_gathered:
        return 0.0
    count = (1 if shape.tied else 2) * shape.hidden * columns
    group = MessageGroup(setup.shards, setup.layout.tensor)
    gather = exchange("all_gather", count * setup.parameter_bytes, group, rates.links)
    scatter = exchange("reduce_scatter", count * setup.gradient_bytes, group, rates.links)
    return gather + (0.0 if setup.adapter else scatter)
