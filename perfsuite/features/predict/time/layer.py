"""One layer and one micro-batch: seconds of its kernels, its messages and its launches."""

from dataclasses import dataclass
from functools import lru_cache, partial

from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.adapters import adapter_parameters
from perfsuite.features.predict.time.attention import KERNELS as ATTENTION_KERNELS
from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.experts import (
    bias_bytes,
    bias_kernels,
    expert_messages,
    launch_gap,
    left_to_compute,
    permuted_bytes,
)
from perfsuite.features.predict.time.head import collect
from perfsuite.features.predict.time.message_times import MessageGroup, exchange, exposed
from perfsuite.features.predict.time.products import expert_rows, feed_forward, half, products
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import LayerStack
from perfsuite.features.predict.time.tensor_messages import block_messages
from perfsuite.features.predict.time.work import ACTIVATION, Rates, Work

CROSS_LAUNCHES = 1.5  # a layer with two attentions has half as many kernels again
# A gather and a scatter are launched where an all-reduce was: the tiny T5 of Megatron-LM's tests takes so much longer
# with sequence parallelism, the median of five hosts (test_cases/t5/t5_mcore_te_tp2_pp1_vp1, at d98e8a64dd).
SEQUENCE_LAUNCHES = 1.12
# Of a layer of Megatron, forward and backward, a third of them forward: four products, three kernels of attention
# and its dropout, two norms, two sums with bias and dropout, an activation, three copies (core/transformer of
# NVIDIA/Megatron-LM). Each product has two in backward.
KERNELS = 48
WIDE = 8  # tensor-parallel ranks whose processes share a host and wait for each other in every layer
GRAPHED = {"none": 1.0, "attention": 0.5, "all": 0.0}  # of a layer's launches, what the host still does
QUANTISED_ATTENTION = 1.45  # times the rate in half precision: cuDNN's kernels on GB200 and GB300, as in published.toml


@lru_cache(maxsize=4096)
def layer(stack: LayerStack, setup: Setup, rates: Rates, constants: Constants) -> Work:
    """One layer and one micro-batch: forward, backward, what is recomputed, and its messages."""
    return Layer(stack, setup, rates, constants).work()


@dataclass(frozen=True)
class Layer:
    """One layer of a stack as a rank computes it in one micro-batch. Its methods give seconds, if they do not say
    otherwise.
    """

    stack: LayerStack
    setup: Setup
    rates: Rates
    constants: Constants

    @property
    def tokens(self) -> int:
        """The tokens that the rank has in this layer."""
        return self.setup.tokens(self.stack)

    @property
    def width(self) -> int:
        """The tensor-parallel ranks."""
        return self.setup.layout.tensor

    @property
    def heads(self) -> int:
        """The rank's attention heads."""
        return max(1, self.stack.heads // self.width) if self.stack.heads else 0

    @property
    def kv_heads(self) -> int:
        """The rank's heads of keys and values."""
        return max(1, self.stack.kv_heads // self.width) if self.stack.heads else 0

    def work(self) -> Work:
        """Forward, backward, what is recomputed, and the messages."""
        stack, setup, rates, constants = self.stack, self.setup, self.rates, self.constants
        matmuls = products(stack, setup, rates, self.tokens, self.width)
        core_forward, core_backward = self._attention()
        traffic, again = self._pointwise()
        forward = matmuls[0] + core_forward + traffic
        backward = matmuls[1] + core_backward + again + self._recomputed(forward, core_forward)
        if setup.recompute in ("pointwise", "feed_forward"):
            backward += traffic
        if setup.recompute == "feed_forward":
            backward += feed_forward(stack, setup, rates, self.tokens, self.width)
        if setup.recompute == "operators":
            backward += traffic + matmuls[0] / 2
        left = left_to_compute(stack, setup, rates)
        forward, backward = forward / left, backward / left
        backward += collect(self._held, setup, rates) + self._added()
        gaps = constants.gap * (KERNELS * self._kernels + bias_kernels(stack, setup))
        forward, backward = forward + gaps / 3, backward + gaps * 2 / 3
        blocks = stack.blocks
        size = self.tokens * stack.hidden * ACTIVATION
        messages = blocks * block_messages(size, setup, rates, constants, matmuls[1] / blocks)
        messages += self._context(core_forward + core_backward)
        experts = expert_messages(stack, setup, rates, constants, forward + backward)
        experts += launch_gap(stack, setup, constants)
        return Work(forward, backward, messages, self._gathers(forward, backward), experts, self._launch())

    def _added(self) -> float:
        """Seconds in which experts' gradients are added to sums where products of one matrix do that themselves."""
        if self.setup.parameter_bytes_moved != 0.0 or self.setup.adapter:
            return 0.0
        own = self.stack.expert_parameters / (self.setup.experts * self.setup.expert_tensor)
        return costs.accumulate(own, self.setup.gradient_bytes, self.rates.memory)

    def _launch(self) -> float:
        """Seconds of the host for a layer's kernels. A graph launches what it has captured."""
        found = self.constants.launch_layer * self._kernels
        found *= self.setup.wide_launch if self.width >= WIDE else 1.0
        return found * GRAPHED[self.setup.graphs]

    @property
    def _kernels(self) -> float:
        """The kernels of a layer, those that are launched again included, by those of a usual one."""
        stack, setup = self.stack, self.setup
        found = CROSS_LAUNCHES if stack.source_hidden else stack.blocks / 2
        found *= 1 + setup.recompute_share / 3 if setup.recompute == "full" else 1.0
        found *= SEQUENCE_LAUNCHES if setup.sequence_parallel else 1.0
        if stack.experts:
            found *= self.constants.launch_experts
        return found

    def _pointwise(self) -> tuple[float, float]:
        """Seconds of a layer's pointwise kernels, forward and backward."""
        stack, setup, tokens, width = self.stack, self.setup, self.tokens, self.width
        pairs = (self.heads + self.kv_heads) * stack.head_width
        inner = stack.feed_forward / width
        if stack.experts:
            routed = expert_rows(stack, setup, tokens, width) * stack.experts.width / setup.expert_tensor
            inner = stack.experts.shared / width + routed / tokens
        if setup.eager:
            widths = stack.hidden, stack.feed_forward // width, pairs
            eager = costs.EAGER[setup.eager].bytes(tokens, *widths)
            norms = [one * tokens * pairs if stack.normed else 0.0 for one in costs.NORM]
            traffic, again = ((one + more) / self.rates.memory for one, more in zip(eager, norms, strict=True))
            return traffic, again
        outside = costs.outside_bytes(tokens, stack.hidden, setup.dropout) * min(stack.blocks, 2) / 2
        inside = costs.inside_bytes(tokens, inner, pairs, stack.gated, stack.normed)
        bytes_ = outside / (width if setup.sequence_parallel else 1) + inside
        bytes_ += permuted_bytes(stack, setup, tokens, width) * self.constants.permute
        traffic = bytes_ / self.rates.memory * self.constants.traffic
        if stack.state:
            between = costs.recurrent_bytes(tokens, stack.others / stack.hidden / width)
            traffic += between / self.rates.memory * self.constants.scan
        biases = (one / self.rates.memory for one in bias_bytes(stack, setup, tokens, width))
        return traffic + next(biases), traffic * costs.BACKWARD_ELEMENTWISE + next(biases)

    def _recomputed(self, forward: float, core: float) -> float:
        """Seconds of what backward computes again: a layer's forward, or the core of its attention."""
        stack, setup = self.stack, self.setup
        if setup.recompute == "selective" and setup.attention == "unfused":
            return core
        if setup.recompute != "full":
            return 0.0
        if setup.early_stop and not stack.experts:
            forward -= half(self.tokens, stack.hidden, stack.feed_forward // self.width, self.rates)
        return forward * setup.recompute_share

    @property
    def _held(self) -> float:
        """The parameters of a layer on one rank that train."""
        stack, setup = self.stack, self.setup
        if setup.adapter:
            return adapter_parameters(stack, setup.adapter, setup.adapted) / self.width
        return stack.dense_parameters / self.width + stack.expert_parameters / (setup.experts * setup.expert_tensor)

    def _attention(self) -> tuple[float, float]:
        """Seconds of what mixes tokens, forward and backward: attention, to itself and to another stack, and a
        recurrence, as if its kernel were as fast as attention's.
        """
        stack, setup, rates, tokens = self.stack, self.setup, self.rates, self.tokens
        own = setup.target if stack.target else setup.sequence
        own = min(own, setup.documents or own)
        seen = [(own, stack.causal and not setup.masked)] + ([(setup.sequence, False)] if stack.source_hidden else [])
        forward = tokens * stack.scan_flops / self.width / rates.attention
        backward = forward * costs.BACKWARD_FLASH
        for keys, causal in seen if stack.heads else ():
            if setup.attention != "unfused":
                kernel = ATTENTION_KERNELS[setup.attention]
                rate = float(getattr(rates, kernel.rate)) * kernel.reached(stack.seen(keys), stack.score_width)
                rate *= QUANTISED_ATTENTION if setup.attention_quantised else 1.0
                width = -(-stack.score_width // costs.DEPTH) * costs.DEPTH
                once = costs.flash_attention(tokens, stack.seen(keys), self.heads * width, causal, rate)
                forward, backward = forward + once, backward + once * costs.BACKWARD_FLASH
            else:
                shape = costs.AttentionShape(tokens, keys, self.heads, stack.head_width)
                unfused = partial(costs.unfused_attention, shape, rates.matmul, rates.memory, dropout=setup.dropout)
                forward, backward = forward + unfused(backward=False), backward + unfused(backward=True)
        return forward, backward

    def _context(self, core: float) -> float:
        """Exposed seconds in which ranks that share a sequence pass keys and values on, and their gradients back.

        They run beside the core of attention (arXiv 2310.01889, section 3). Backward sends twice as much. If heads are
        exchanged, queries, keys, values and outputs are, before and after the core and in both passes, beside nothing.
        """
        stack, setup = self.stack, self.setup
        if setup.context == 1:
            return 0.0
        width = 2 * stack.head_width * self.kv_heads
        if stack.latent:
            width = 2 * round(stack.score_width) * self.heads
        size = setup.micro_batch * setup.sequence * width * ACTIVATION
        group = MessageGroup(setup.context, self.width)
        if setup.context_exchange == "heads":
            size = self.tokens * 2 * (self.heads + self.kv_heads) * stack.head_width * ACTIVATION
            passes = 2 + (1 if setup.recompute == "full" else 0)
            return passes * exchange("all_gather", size, group, self.rates.links)
        return exposed(core, 3 * exchange("all_gather", size, group, self.rates.links), self.constants.overlap)

    def _gathers(self, forward: float, backward: float) -> float:
        """Exposed seconds if the parameters are sharded: a gather in each pass, and the gradients' scatter."""
        stack, setup, links, overlap = self.stack, self.setup, self.rates.links, self.constants.overlap
        if "parameters" not in setup.sharded:
            return 0.0
        gather = scatter = 0.0
        pieces, width = setup.layer_messages, self.width
        parts = [(stack.dense_parameters / width, MessageGroup(setup.shards, width))]
        if stack.experts:
            own = setup.experts * setup.expert_tensor
            parts.append((stack.expert_parameters / own, MessageGroup(int(setup.expert_shards), own)))
        for count, group in parts:
            gather += pieces * exchange("all_gather", count / pieces * setup.parameter_bytes, group, links)
            if not setup.adapter:
                scatter += pieces * exchange("reduce_scatter", count / pieces * setup.gradient_bytes, group, links)
        if parts[0][1].nodes(links.node) > 1:
            gather, scatter = gather / setup.gather_share, scatter / setup.gather_share
        beside, hidden = (gather + scatter, 0.0) if setup.prefetched else (scatter, gather)
        return exposed(forward, gather, overlap) + exposed(backward, beside, overlap) + hidden
