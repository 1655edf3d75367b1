"""The coarse memory of a setup, in closed form: it prunes layouts by the thousand. A trace confirms the winners.

State: arXiv 1910.02054, section 3.1. Activations: arXiv 2205.05198, section 4, whose terms stand here one by one.
"""

import math
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

from perfsuite.predict.time.held import held, stage_layers
from perfsuite.predict.time.products import expert_rows
from perfsuite.predict.time.setup import Setup
from perfsuite.predict.time.shape import Shape, Stack

WHAT = ("parameters", "gradients", "optimizer")
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
# Chosen with the playbook's cells in sight: nanotron copies hidden states three times more. Of the two inputs that its
# column-parallel layers gather (4 bytes) some are gathered again in backward (tp_recompute_allgather): 3 stay. The loss
# keeps a softmax: 2 + 4 + 4, and the gradient in half precision.
# transformers' eager norms keep their input in fp32 and their output before the weight (6 each beside the product's
# input): modeling_llama.py. Its loss keeps logits in fp32, their log-softmax, and gradients in both formats.
EAGER = Kept(hidden=16.0, logit=14.0)
KEPT = {"deepspeed": EAGER, "fsdp2": EAGER, "nanotron": Kept(hidden=14.0, gathered=3.0, logit=12.0)}
# What the caching allocator reserved by what this form says: the median, and the deviation of its logarithm, of the 48
# cells of benchmarks/published/times/nanotron_playbook.csv that ran.
RESERVED, SPREAD = 1.03, 0.06
LIKELY = 0.8  # the chance to fit from which on a layout is taken
FLAT_LAYERS = 2  # layers whose whole parameters FSDP holds at once


def state_bytes(shape: Shape, setup: Setup) -> float:
    """Parameters, gradients and optimizer state of the fullest rank.

    Where products add to an fp32 sum themselves, or each layer's gradients are scattered, no gradients in half
    precision are beside it.
    """
    dense, experts = held(shape, setup)
    found = 0.0
    whole = setup.parameter_bytes_moved != 0.0 and "parameters" not in setup.sharded
    beside = 2 if setup.gradient_bytes == 4 and whole else 0
    for count, shards in ((dense, float(setup.shards)), (experts, setup.expert_shards)):
        share = {what: 1 / shards if what in setup.sharded else 1.0 for what in WHAT}
        found += 2 * count * share["parameters"]
        if setup.offload:
            found += 2 * count * share["gradients"] if "gradients" not in setup.sharded else 0.0
            continue
        found += count * (
            (setup.gradient_bytes + beside) * share["gradients"] + MASTER_AND_MOMENTS * share["optimizer"]
        )
    if "parameters" in setup.sharded:
        found += FLAT_LAYERS * max(map(partial(_whole, setup), shape.stacks)) * (2 + setup.gradient_bytes)
    return found


def _whole(setup: Setup, stack: Stack) -> float:
    """The parameters of a gathered layer on one rank."""
    own = setup.experts * setup.expert_tensor
    return stack.dense_parameters / setup.layout.tensor + stack.expert_parameters / own


def host_bytes(shape: Shape, setup: Setup) -> float:
    """What one rank keeps on the host: master parameters, two moments and gradients in fp32, if they are offloaded."""
    if not setup.offload:
        return 0.0
    dense, experts = held(shape, setup)
    return (MASTER_AND_MOMENTS + 4) * (dense / setup.shards + experts / setup.expert_shards)


def layer_bytes(stack: Stack, setup: Setup, kept: Kept = FUSED) -> float:
    """What one layer keeps of one micro-batch for backward, without recomputing whole layers.

    Outside of the tensor-parallel region hidden states are kept, and dropout's two masks (2 per element). Inside,
    queries, keys, values, the projection's input, and the feed-forward before and after its activation keep 2 each; a
    gate keeps two more. Separate attention kernels keep 5 per score. Experts keep the rows that they got, and gave.
    Recomputed pointwise kernels keep neither norms nor activations; torchtitan's operators half of the rest, too.
    """
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence) // setup.context
    width, cheap = setup.layout.tensor, setup.recompute in ("pointwise", "operators")
    masks = 2 if setup.dropout else 0
    hidden = kept.hidden - (4.0 if cheap else 0.0) + masks
    outside = tokens * stack.hidden * hidden * (1.5 if stack.source_hidden else 1.0)
    inside = tokens * _inside(stack, cheap) / width
    found = outside / (width if setup.sequence_parallel else 1) + inside
    if stack.experts:
        rows = expert_rows(stack, setup, tokens, width)
        own = stack.experts.width / setup.expert_tensor
        found += 2.0 * rows * (2 * stack.hidden + (own * (3 if stack.gated else 1) if cheap else own * 4))
    if setup.recompute == "operators":
        found /= 2
    if width > 1:
        found += kept.gathered * tokens * stack.hidden
    if setup.attention == "unfused" and setup.recompute in ("none", "pointwise", "operators"):
        keys = setup.target if stack.target else setup.sequence
        found += 5.0 * tokens * (keys + (setup.sequence if stack.source_hidden else 0)) * stack.heads / width
    return found


def _inside(stack: Stack, cheap: bool) -> float:
    """Bytes per token of what the tensor-parallel ranks divide: attention, and the dense feed-forward."""
    heads, pairs = stack.heads * stack.head_width, 2 * stack.kv_heads * stack.head_width
    attention = (2 if stack.source_hidden else 1) * (2 * heads + pairs)
    if stack.latent:
        one = stack.latent
        attention = stack.heads * (2 * (one.plain + one.rotary) + 2 * one.value) + one.query + one.pair
    inner = stack.experts.shared if stack.experts else stack.feed_forward
    elements = (4 if stack.gated else 2) - (1 if cheap else 0)
    return 2.0 * (attention + elements * inner)


def activation_bytes(shape: Shape, setup: Setup, kept: Kept = FUSED) -> float:
    """Activations of the fullest stage: the first keeps as many micro-batches as there are stages, the last the logits.

    With interleaving it keeps 1 + (p−1)/(p·v) as many (arXiv 2205.05198, section 4.2.3).
    """
    layout = setup.layout
    first = last = whole = 0.0
    counts = stage_layers(shape, setup)
    for stack in shape.stacks:
        one = layer_bytes(stack, setup, kept)
        tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence) // setup.context
        share = layout.tensor if setup.sequence_parallel else 1
        input_alone = 2.0 * tokens * stack.hidden / share
        again = setup.recompute_share if setup.recompute == "full" else 0.0
        mean = stack.layers / shape.layers * (again * input_alone + (1 - again) * one)
        first, last, whole = first + counts[0] * mean, last + counts[-1] * mean, max(whole, one)
    extra = whole if setup.recompute == "full" else 0.0
    decoder = shape.stacks[-1]
    tokens = setup.micro_batch * (setup.target if decoder.target else setup.sequence) // setup.context
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
