"""Experts on several ranks: what a layer sends to them and back, and what permuting its tokens moves."""

from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.message_times import Links, MessageGroup, exposed
from perfsuite.features.predict.time.products import expert_rows, expert_tokens
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Experts, LayerStack
from perfsuite.features.predict.time.work import ACTIVATION, Rates

PASSES = 4  # dispatch and combine, forward and backward
# Multiprocessors of exchanges between nodes that run beside computation: arXiv 2412.19437, section 3.2.2.
EXCHANGING = 20
# What DeepEP's and HybridEP's kernels reach of the nominal rates: between nodes 43 to 58 of 50 GB/s (16 to 64 H800,
# some bytes stay in a node), and 153 to 158 of 200 by NVLink inside of one; 726 to 740 of 900 on Blackwell, with what
# stays on a rank. README of deepseek-ai/DeepEP at 84d3d6fdee, 0a08009edf and dd758caf45.
FUSED_LINK, FUSED_NETWORK = 0.75, 0.93


# Megatron adds an expert's bias of its second product times the router's weight, expert by expert and in fp32 (28 bytes
# per element), and backward sums the gradients of bias and weight (36): _apply_bias of TEGroupedMLP, in
# core/transformer/moe/experts.py of NVIDIA/Megatron-LM. These are twelve kernels of each expert, with the sums for the
# bias of its first product.
BIAS, BIAS_KERNELS = (28.0, 36.0), 12


def reached(places: int, chosen: int) -> float:
    """Of ``places`` with equally many experts each, how many a token needs on average: p·(1 − (1 − 1/p)^k)."""
    return places * (1 - (1 - 1 / places) ** chosen)


def exchange_experts(size: float, experts: Experts, fused: bool, group: MessageGroup, links: Links) -> float:
    """Seconds in which a rank sends its tokens, ``size`` bytes in all, to their experts.

    NCCL's all-to-all sends a token once for each of its experts. DeepEP and HybridEP send it once to each node, where
    NVLink spreads it (README of deepseek-ai/DeepEP). The slower of both links decides.
    """
    ranks, chosen = group.ranks, experts.chosen
    if ranks <= 1:
        return 0.0
    inside, nodes = group.inside(links.node), group.nodes(links.node)
    if fused:
        places = min(reached(nodes, chosen), float(experts.nodes or nodes))
        link = size * reached(ranks, chosen) * (ranks - 1) / ranks / (links.nominal * FUSED_LINK)
        outside = size * places * (nodes - 1) / nodes / (links.nominal_network * FUSED_NETWORK)
    else:
        link = size * chosen * (inside - 1) / ranks / links.link
        outside = size * chosen * (nodes - 1) / nodes / links.network
    seconds = max(link, outside)
    latency = links.start + links.handover + (links.latency * links.start if nodes > 1 else 0.0)
    return seconds + latency


def expert_messages(stack: LayerStack, setup: Setup, rates: Rates, constants: Constants, beside: float) -> float:
    """Exposed seconds of a layer's exchanges. ``beside`` are those of its kernels: another micro-batch has them too."""
    if not stack.experts or setup.experts * setup.expert_tensor == 1:
        return 0.0
    width, fused = setup.layout.tensor, setup.dispatch == "fused"
    size = expert_tokens(setup.tokens(stack), width) * stack.expert_hidden * ACTIVATION * setup.imbalance
    stride = width if setup.expert_tensor > 1 else 1
    group = MessageGroup(setup.experts, stride)
    once = exchange_experts(size, stack.experts, fused, group, rates.links)
    passes = PASSES + (2 if setup.recompute == "full" else 0)
    if setup.dispatch_overlapped:
        return exposed(beside, passes * once, constants.overlap)
    return passes * once


def launch_gap(stack: LayerStack, setup: Setup, constants: Constants) -> float:
    """Seconds in which a layer's device waits in a micro-batch for the kernels of its own experts, each with products
    and operands of its own. The host launches them after it has read how many tokens each gets, and graphs do not wait.
    """
    if not stack.experts or setup.graphs == "all":
        return 0.0
    return constants.launch_expert * max(1, stack.experts.count // setup.experts)


def left_to_compute(stack: LayerStack, setup: Setup, rates: Rates) -> float:
    """The share of the multiprocessors that compute while another micro-batch's tokens are exchanged between nodes."""
    nodes = MessageGroup(setup.experts, setup.layout.tensor if setup.expert_tensor > 1 else 1).nodes(rates.links.node)
    taken = EXCHANGING if stack.experts and setup.dispatch_overlapped and nodes > 1 else 0
    return 1 - taken / rates.multiprocessors


def bias_bytes(stack: LayerStack, setup: Setup, tokens: int, width: int) -> tuple[float, float]:
    """Forward and backward bytes in which experts add biases of their own."""
    if not (stack.experts and stack.experts.biased):
        return 0.0, 0.0
    elements = expert_rows(stack, setup, tokens, width) * stack.expert_hidden
    return BIAS[0] * elements, BIAS[1] * elements


def bias_kernels(stack: LayerStack, setup: Setup) -> int:
    """How many kernels add them in a layer, forward and backward; one compiled whole has none of its own."""
    if not (stack.experts and stack.experts.biased) or setup.graphs == "all":
        return 0
    return BIAS_KERNELS * max(1, stack.experts.count // setup.experts)


def permuted_bytes(stack: LayerStack, setup: Setup, tokens: int, width: int) -> float:
    """Forward bytes in which tokens are copied to their experts' order and back, and summed with their weights."""
    if not stack.experts:
        return 0.0
    own, rows = expert_tokens(tokens, width), expert_rows(stack, setup, tokens, width)
    return 2.0 * ACTIVATION * (own + rows) * stack.expert_hidden
