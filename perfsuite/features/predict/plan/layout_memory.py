"""The coarse memory of a setup, in closed form: it prunes layouts by the thousand. A trace confirms the winners.

State: arXiv 1910.02054, section 3.1. Activations: arXiv 2205.05198, section 4, whose terms stand here one by one.
"""

from dataclasses import replace
from functools import partial

from perfsuite.features.predict.time.adapters import BASES
from perfsuite.features.predict.time.costs import MASTER
from perfsuite.features.predict.time.cross_entropy import CROSS_ENTROPIES
from perfsuite.features.predict.time.held import held, stage_layers, trained
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.products import expert_rows
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import LayerStack, Shape
from perfsuite.features.predict.time.software import SOFTWARE, KeptTensors

WHAT = ("parameters", "gradients", "optimizer")
FUSED, KEPT = KeptTensors(), {name: one.kept for name, one in SOFTWARE.items()}
# What the caching allocator reserves by the tensors that this form says. RESERVED is the median of the 48 cells of
# nanotron_playbook.csv that ran. Eager layers leave more gaps: EAGER is the median of three traces of Llama 3 8B with
# FSDP2 and torchtitan's recomputation, replayed through the allocator. Without gradients they need 1.09 times their
# tensors on 128 devices and on 8, and 1.11 times on 8 with half of the batch.
RESERVED, EAGER = 1.03, 1.09
FLAT_LAYERS = 2  # layers whose whole parameters FSDP holds at once


def state_bytes(shape: Shape, setup: Setup, kept: KeptTensors = FUSED) -> float:
    """Parameters, gradients and optimizer state of the fullest rank, with the layers that it gathers."""
    return sum(state_parts(shape, setup, kept).values())


def state_parts(shape: Shape, setup: Setup, kept: KeptTensors = FUSED) -> dict[str, float]:
    """The bytes of ``parameters``, ``gradients``, ``optimizer`` and whole layers that are ``gathered``.

    Where products add to an fp32 sum themselves, or each layer's gradients are scattered, no gradients in half
    precision are beside it, but one of each shape that Transformer Engine returns instead (get_dummy_wgrad of
    transformer_engine/pytorch/module/base.py). Gradients that backward makes anew are ``gradient_bytes``.
    """
    dense, experts = held(shape, setup)
    if setup.adapter:
        return _adapted(shape, setup, dense, experts)
    if kept.fp32_shards and "parameters" in setup.sharded:
        own = dense / setup.shards + experts / setup.expert_shards
        tables = shape.hidden * shape.vocabulary * 2 * (1 if shape.tied else 2) / setup.layout.tensor
        layers = 1 if kept.hosted else FLAT_LAYERS  # a loop of XLA gathers nothing for the next layer
        gathered = tables + layers * max(map(partial(_whole, setup), shape.stacks)) * 2
        return {"parameters": MASTER * own, "optimizer": setup.moment_bytes * own, "gathered": gathered}
    found = dict.fromkeys((*WHAT, "gathered"), 0.0)
    whole = setup.parameter_bytes_moved != 0.0 and "parameters" not in setup.sharded
    beside = 2 if setup.gradient_bytes == 4 and whole else 0
    tables = _tables(shape, setup)
    for count, shards in ((dense, float(setup.shards)), (experts, setup.expert_shards)):
        share = {what: 1 / shards if what in setup.sharded else 1.0 for what in WHAT}
        share["optimizer"] /= setup.layout.replicas if kept.outer and setup.layout.shards > 1 else 1
        found["parameters"] += (setup.weight_bytes * (count - tables) + 2 * tables) * share["parameters"]
        tables = 0.0
        if setup.offload:
            found["gradients"] += 2 * count * share["gradients"] if "gradients" not in setup.sharded else 0.0
            continue
        found["gradients"] += count * (setup.gradient_bytes + beside) * share["gradients"]
        found["optimizer"] += count * (setup.master_bytes + setup.moment_bytes) * share["optimizer"]
    if setup.parameter_bytes_moved == 0.0:  # autograd gets a gradient that nobody reads, one of each shape
        found["gradients"] += 2 * max(stack.dense_parameters for stack in shape.stacks) / setup.layout.tensor
    if "parameters" in setup.sharded:
        found["gathered"] += FLAT_LAYERS * max(map(partial(_whole, setup), shape.stacks)) * (2 + setup.gradient_bytes)
    return found


def _adapted(shape: Shape, setup: Setup, dense: float, experts: float) -> dict[str, float]:
    """The parts of state_parts if adapters alone train: frozen weights in their format, tables in half precision, and
    adapters with all their state in fp32.
    """
    tables = shape.hidden * shape.vocabulary * (1 if shape.tied else 2) / setup.layout.tensor
    frozen, own = dense - tables + experts, trained(shape, setup)[0]
    shards = setup.shards if "parameters" in setup.sharded else 1
    gathered = max(map(partial(_whole, setup), shape.stacks)) * 2 if shards > 1 or setup.base != "bf16" else 0.0
    parameters = (BASES[setup.base] * frozen + 2 * tables + MASTER * own) / shards
    state = own / (setup.shards if "optimizer" in setup.sharded else 1)
    gradients = MASTER * own / (shards if "gradients" in setup.sharded else 1)
    found = {"parameters": parameters, "gradients": gradients, "optimizer": setup.moment_bytes * state}
    return found | {"gathered": gathered}


def _tables(shape: Shape, setup: Setup) -> float:
    """The elements of the vocabulary's tables on the fullest rank, which are in no product's format."""
    both = setup.layout.pipeline == 1 and not shape.tied
    return min(shape.hidden * shape.vocabulary * (2 if both else 1) / setup.layout.tensor, held(shape, setup)[0])


def _whole(setup: Setup, stack: LayerStack) -> float:
    """The parameters of a gathered layer on one rank."""
    own = setup.experts * setup.expert_tensor
    return stack.dense_parameters / setup.layout.tensor + stack.expert_parameters / own


def host_bytes(shape: Shape, setup: Setup) -> float:
    """What one rank keeps on the host: master parameters, two moments and gradients in fp32, if they are offloaded."""
    if not setup.offload:
        return 0.0
    dense, experts = held(shape, setup)
    return (setup.master_bytes + setup.moment_bytes + 4) * (dense / setup.shards + experts / setup.expert_shards)


def layer_bytes(stack: LayerStack, setup: Setup, kept: KeptTensors = FUSED) -> float:
    """What one layer keeps of one micro-batch for backward, without recomputing whole layers.

    Outside of the tensor-parallel region hidden states are kept, and dropout's two masks (2 per element). Inside,
    queries, keys, values, the projection's input, and the feed-forward before and after its activation are kept.
    Separate attention kernels keep 5 per score. Experts keep the rows that they got, and gave if these are weighted.
    Recomputed pointwise kernels keep neither norms nor activations; torchtitan's operators half of the rest, too.
    """
    tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence) // setup.context
    width, cheap = setup.layout.tensor, setup.recompute in ("pointwise", "operators", "feed_forward")
    if setup.recompute == "feed_forward":
        stack = replace(stack, feed_forward=0, experts=None)
    masks, given = 2 if setup.dropout else 0, input_bytes(setup, kept)
    hidden = kept.hidden - 4.0 + (0.0 if cheap else 2 * given) + masks
    outside = tokens * stack.hidden * hidden * (1.5 if stack.source_hidden else 1.0)
    inside = tokens * _inside(stack, setup, kept, cheap) / width
    found = outside / (width if setup.sequence_parallel else 1) + inside
    if stack.experts:
        rows = expert_rows(stack, setup, tokens, width)
        own = stack.experts.width / setup.expert_tensor * _feed_forward(stack, setup, kept, cheap)
        found += rows * (stack.expert_hidden * (given + (0.0 if kept.fused else 2.0)) + own)
    if setup.recompute == "operators":
        found /= 2
    if width > 1:
        found += kept.gathered * tokens * stack.hidden
    return found if setup.recompute in ("selective", "full") else found + _score_bytes(stack, setup, tokens)


def input_bytes(setup: Setup, kept: KeptTensors) -> float:
    """Of an element of a product's input that is kept."""
    return PRECISIONS[setup.precision].element if kept.quantised else 2.0


def _score_bytes(stack: LayerStack, setup: Setup, tokens: int) -> float:
    """What a layer keeps of its scores, 5 bytes each: as logits, probabilities and the mask of their dropout. A fused
    kernel keeps none.
    """
    if setup.attention != "unfused":
        return 0.0
    keys = (setup.target if stack.target else setup.sequence) + (setup.sequence if stack.source_hidden else 0)
    return 5.0 * tokens * keys * stack.heads / setup.layout.tensor


def _feed_forward(stack: LayerStack, setup: Setup, kept: KeptTensors, cheap: bool) -> float:
    """Bytes per inner feature: what the first product gave, the gate's activation apart if no kernel fuses it, and the
    second product's input, unless it is recomputed.
    """
    apart = 2.0 if stack.gated and not kept.fused else 0.0
    return (4.0 if stack.gated else 2.0) + apart + (0.0 if cheap else input_bytes(setup, kept))


def _inside(stack: LayerStack, setup: Setup, kept: KeptTensors, cheap: bool) -> float:
    """Bytes per token of what the tensor-parallel ranks divide: attention, and the dense feed-forward.

    The projection's input is attention's output, which attention keeps in half precision, too.
    """
    heads, pairs = stack.heads * stack.head_width, 2 * stack.kv_heads * stack.head_width
    attention = (2 if stack.source_hidden else 1) * (2 * heads + pairs)
    if stack.latent:
        one = stack.latent
        heads = stack.heads * one.value
        # Recomputed pointwise kernels come with recomputed projections from the compressed queries, keys and values.
        wide = 0 if kept.fused and cheap else stack.heads * (2 * (one.plain + one.rotary) + one.value)
        attention = wide + heads + one.query + one.pair
    again = input_bytes(setup, kept)
    inner = stack.experts.shared if stack.experts else stack.feed_forward
    others = stack.others / stack.hidden * (2 if stack.state else 1)  # a recurrence keeps what its products gave, twice
    each = 1.0 if setup.attention_quantised else 2.0
    cast = heads * again if again < each else 0.0
    return each * attention + cast + 2.0 * others + inner * _feed_forward(stack, setup, kept, cheap)


def activation_bytes(shape: Shape, setup: Setup, kept: KeptTensors = FUSED) -> float:
    """Activations of the fullest stage: the first keeps as many micro-batches as there are stages, the last the logits.

    With interleaving it keeps 1 + (p−1)/(p·v) as many (arXiv 2205.05198, section 4.2.3). In backward, what a layer
    computes again is there once: the whole layer, or its scores.
    """
    layout = setup.layout
    first = last = again = 0.0
    counts = stage_layers(shape, setup)
    for stack in shape.stacks:
        one = layer_bytes(stack, setup, kept)
        tokens = setup.micro_batch * (setup.target if stack.target else setup.sequence) // setup.context
        share = layout.tensor if setup.sequence_parallel else 1
        hosted = kept.hosted and setup.recompute == "feed_forward"
        input_alone = 0.0 if hosted else 2.0 * tokens * stack.hidden / share
        share_again = setup.recompute_share if setup.recompute == "full" else float(hosted)
        mean = stack.layers / shape.layers * (share_again * input_alone + (1 - share_again) * one)
        first, last = first + counts[0] * mean, last + counts[-1] * mean
        if setup.recompute in ("selective", "full") or hosted:
            whole = one if setup.recompute == "full" or hosted else 0.0
            again = max(again, _score_bytes(stack, setup, tokens) + whole)
    logits = (kept.logits or CROSS_ENTROPIES[setup.cross_entropy].held) * _logits(shape, setup)
    if layout.pipeline == 1:
        return first + max(again, logits)
    flying = float(min(layout.pipeline, setup.accumulation))
    if setup.interleave > 1:
        flying *= 1 + (layout.pipeline - 1) / (layout.pipeline * setup.interleave)
    return max(first * flying + again, last + max(again, logits))


def tensor_bytes(shape: Shape, setup: Setup, stack: str = "") -> float:
    """All tensors of the fullest rank, as the software ``stack`` keeps them."""
    return sum(tensor_parts(shape, setup, stack).values())


def tensor_parts(shape: Shape, setup: Setup, stack: str = "") -> dict[str, float]:
    """The bytes of state_parts, and of ``activations``.

    Gradients that backward makes anew take the place of what it has used, the logits first.
    """
    kept = KEPT.get(stack, FUSED)
    activations = max(activation_bytes(shape, setup, kept), _scattered(shape, setup, kept))
    return state_parts(shape, setup, kept) | {"activations": activations}


def _scattered(shape: Shape, setup: Setup, kept: KeptTensors) -> float:
    """The fp32 gradients that backward makes anew and divides, of one rank."""
    if not kept.fp32_shards or "parameters" not in setup.sharded or setup.adapter:
        return 0.0
    dense, experts = held(shape, setup)
    return 4 * (dense / setup.shards + experts / setup.expert_shards)


def needed_bytes(shape: Shape, setup: Setup, stack: str = "") -> float:
    """What the allocator reserves for the tensors, and for logits whose block nothing fits into after them.

    FSDP divides gradients on a stream of its own (foreach_reduce of torch/distributed/fsdp/_fully_shard), and the
    allocator gives a stream no block that another one has freed. So they take no other tensor's place, but XLA's do.
    """
    kept = KEPT.get(stack, FUSED)
    logits = CROSS_ENTROPIES[setup.cross_entropy].freed * _logits(shape, setup)
    factor = EAGER if kept.eager or setup.eager is not None else RESERVED
    if kept.hosted:
        return factor * (tensor_bytes(shape, setup, stack) + logits)
    own = state_bytes(shape, setup, kept) + activation_bytes(shape, setup, kept)
    return factor * (own + logits) + _scattered(shape, setup, kept)


def _logits(shape: Shape, setup: Setup) -> float:
    """The logits of one rank: a classifier has none."""
    decoder = shape.stacks[-1]
    tokens = setup.micro_batch * (setup.target if decoder.target else setup.sequence) // setup.context
    return 0.0 if shape.classifies else tokens * shape.vocabulary / setup.layout.tensor
