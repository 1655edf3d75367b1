"""The coarse memory of a setup, in closed form: it prunes layouts by the thousand. A trace confirms the winners.

State: arXiv 1910.02054, section 3.1. Activations: arXiv 2205.05198, section 4, whose terms stand here one by one.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from perfsuite.predict.time.setup import Setup
from perfsuite.predict.time.shape import Shape, Stack
from perfsuite.predict.time.step import held_parameters, stage_layers

MASTER_AND_MOMENTS = 12  # bytes per parameter: fp32 copy, two moments of Adam


@dataclass(frozen=True)
class Kept:
    """What a software keeps for backward, in bytes per element.

    ``hidden``: of a layer's hidden states, since two norms and two products keep their inputs. ``gathered``: of the
    inputs that tensor-parallel layers gather and keep whole on every rank. ``logit``: of the logits and their loss.
    """

    hidden: float = 8.0
    gathered: float = 0.0
    logit: float = 10.0  # in half precision, their fp32 copy, and the gradient in fp32


FUSED = Kept()
# Counted, not fitted. nanotron copies hidden states twice more, keeps what its column-parallel layers have gathered
# (two inputs), and the loss keeps a softmax: 2 + 4 + 4, and the gradient in half precision.
KEPT = {"nanotron": Kept(hidden=12.0, gathered=4.0, logit=12.0)}
# What the caching allocator reserved by what this form says: the median, and the deviation of its logarithm, of the 48
# cells of benchmarks/published/times/nanotron_playbook.csv that ran.
RESERVED, SPREAD = 1.03, 0.06
LIKELY = 0.8  # the chance to fit from which on a layout is taken
FLAT_LAYERS = 2  # layers whose whole parameters FSDP holds at once


def state_bytes(shape: Shape, setup: Setup) -> float:
    """Parameters, gradients and optimizer state of the fullest rank."""
    count = held_parameters(shape, setup)
    share = {
        what: 1 / setup.shards if what in setup.sharded else 1.0 for what in ("parameters", "gradients", "optimizer")
    }
    found = 2 * count * share["parameters"]
    gradients = setup.gradient_bytes + (2 if setup.gradient_bytes == 4 else 0)  # a sum in fp32 beside the new ones
    if setup.offload:
        found += 2 * count * share["gradients"] if "gradients" not in setup.sharded else 0.0
    else:
        found += count * (gradients * share["gradients"] + MASTER_AND_MOMENTS * share["optimizer"])
    if "parameters" in setup.sharded:
        largest = max(stack.layer_parameters for stack in shape.stacks) / setup.layout.tensor
        found += FLAT_LAYERS * largest * (2 + setup.gradient_bytes)
    return found


def host_bytes(shape: Shape, setup: Setup) -> float:
    """What one rank keeps on the host: master parameters, two moments and gradients in fp32, if they are offloaded."""
    if not setup.offload:
        return 0.0
    return (MASTER_AND_MOMENTS + 4) * held_parameters(shape, setup) / setup.shards


def layer_bytes(stack: Stack, setup: Setup, kept: Kept = FUSED) -> float:
    """What one layer keeps of one micro-batch for backward, without recomputation.

    Outside of the tensor-parallel region hidden states are kept, and dropout's two masks (2 per element). Inside,
    queries, keys, values, the projection's input, and the feed-forward before and after its activation keep 2 each; a
    gate keeps two more. Separate attention kernels keep 5 per score.
    """
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
    width = setup.layout.tensor
    heads, pairs = stack.heads * stack.head_width, 2 * stack.kv_heads * stack.head_width
    blocks = 2 if stack.source_hidden else 1
    masks = 2 if setup.dropout else 0
    outside = tokens * stack.hidden * (kept.hidden + masks) * (1.5 if stack.source_hidden else 1.0)
    inside = 2.0 * tokens * (blocks * (2 * heads + pairs) + (4 if stack.gated else 2) * stack.feed_forward)
    found = outside / (width if setup.sequence_parallel else 1) + inside / width
    if width > 1:
        found += kept.gathered * tokens * stack.hidden
    if setup.attention == "unfused" and setup.recompute == "none":
        keys = setup.target if stack.target else setup.sequence
        found += 5.0 * tokens * (keys + (setup.sequence if stack.source_hidden else 0)) * stack.heads / width
    return found


def activation_bytes(shape: Shape, setup: Setup, kept: Kept = FUSED) -> float:
    """Activations of the fullest stage: the first keeps as many micro-batches as there are stages, the last the logits.

    With interleaving it keeps 1 + (p−1)/(p·v) as many (arXiv 2205.05198, section 4.2.3).
    """
    layout = setup.layout
    first = last = whole = 0.0
    counts = stage_layers(shape, setup)
    for stack in shape.stacks:
        one = layer_bytes(stack, setup, kept)
        tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence)
        share = layout.tensor if setup.sequence_parallel else 1
        input_alone = 2.0 * tokens * stack.hidden / share
        held = stack.layers / shape.layers * (input_alone if setup.recompute == "full" else one)
        first, last, whole = first + counts[0] * held, last + counts[-1] * held, max(whole, one)
    extra = whole if setup.recompute == "full" else 0.0
    decoder = shape.stacks[-1]
    tokens = setup.micro_batch * (setup.target if decoder.target else setup.sequence)
    logits = 0.0 if shape.classifies else kept.logit * tokens * shape.vocabulary / layout.tensor
    if layout.pipeline == 1:
        return first + max(extra, logits)
    flying = float(min(layout.pipeline, setup.accumulation))
    if setup.interleave > 1:
        flying *= 1 + (layout.pipeline - 1) / (layout.pipeline * setup.interleave)
    return max(first * flying + extra, last + max(extra, logits))


def needed_bytes(shape: Shape, setup: Setup, stack: str = "") -> float:
    """All tensors of the fullest rank, as the software ``stack`` keeps them."""
    return state_bytes(shape, setup) + activation_bytes(shape, setup, KEPT.get(stack, FUSED))


def chance_to_fit(needed: float, room: float) -> float:
    """The chance, 0 to 1, that a layout which needs so many bytes reserves no more than the device's ``room``."""
    return _RESERVED.cdf(math.log(room / needed))


def capacity(room: float) -> float:
    """The bytes that a layout may need so that it is ``LIKELY`` to fit."""
    return room / math.exp(_RESERVED.inv_cdf(LIKELY))


_RESERVED = NormalDist(math.log(RESERVED), SPREAD)
