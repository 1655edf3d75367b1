"""How a model is trained, and on what: the two inputs of the closed form besides the model's shape."""

from dataclasses import dataclass
from typing import Literal

from perfsuite.catalog.definitions import Layout
from perfsuite.features.predict.time.costs import MASTER, MEGATRON_ADAM, MOMENTS
from perfsuite.features.predict.time.shape import LayerStack

ONE_RANK = Layout()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to train: how the ranks divide the work of a step, and what each does."""

    layout: Layout = ONE_RANK
    sequence: int  # tokens of a sample; behind an encoder, a decoder has ``target``
    target: int = 0
    micro_batch: int = 1  # samples that go through a replica at once, ``accumulation`` times per step
    accumulation: int = 1
    precision: str = "bf16"  # of the layers' products, a key of precision.PRECISIONS
    dropout: bool = False
    documents: int = 0  # tokens of each of the documents that a sample packs, which do not attend to others (0: one)
    context: int = 1  # ranks that share a sequence: each has its part of the queries
    # "pairs": they pass keys and values on. "heads": each gets all tokens of a part of the heads (arXiv 2309.14509).
    context_exchange: Literal["pairs", "heads"] = "pairs"

    # Fine-tuning.
    adapter: int = 0  # rank of the adapters that train, beside frozen weights (0: all weights train)
    adapted: str = "all"  # which matrices have adapters, one of adapters.TARGETS
    base: str = "bf16"  # the format of frozen weights, a key of adapters.BASES

    # Pipeline.
    interleave: int = 1  # model chunks of a rank
    balanced: bool = False  # stages get layers and head by their cost, and not layers alone
    sends_overlapped: bool = False  # a stage computes another chunk while it sends

    # Replicas and shards.
    sharded: frozenset[str] = frozenset()  # what ``layout.shards`` divide: optimizer, gradients, parameters
    scattered: bool = True  # a rank gets its own gradients only, and not the sums of all (DeepSpeed's ZeRO 1 and 2)
    overlapped: bool = False  # gradients are reduced while backward computes
    prefetched: bool = True  # backward gathers the next layer's parameters while it computes
    # Parameters outside of layers are gathered once per micro-batch and their gradients scattered, with nothing to
    # compute next to them. The fitted tables' models have small vocabularies, so their rows leave it out.
    embedding_gathered: bool = False
    gradient_bytes: int = 2  # of one element on the wire
    parameter_bytes: int = 2
    gradient_messages: int = 1  # in which whole gradients are reduced
    layer_messages: int = 1  # in which a layer's sharded parameters are gathered
    gather_share: float = 1.0  # of the usual rate that gathers and scatters of sharded parameters reach
    persistent: int = 0  # vectors that are whole although parameters are sharded, each gathered after the step

    # Experts.
    experts: int = 1  # ranks that divide the experts of a layer
    expert_tensor: int = 1  # ranks that divide one expert
    dispatch: Literal["all_to_all", "fused"] = "fused"  # DeepEP's and HybridEP's send a token once to each node
    dispatch_overlapped: bool = False  # experts' messages run beside another micro-batch
    imbalance: float = 1.0  # tokens of the fullest rank's experts by the mean

    # Tensor parallelism.
    sequence_parallel: bool = False
    tensor_overlapped: bool = True  # backward's messages run beside matmuls where they can
    tensor_pipelined: bool = False  # all of them do, cut in pieces (Transformer Engine's userbuffers)
    tensor_gradients: float = 1.0  # backward's all-reduces of a block: one if the block's first layer is one matrix
    tensor_gradient_bytes: int = 2  # per element of them
    wide_launch: float = 1.0  # the host's time for a layer at tensor widths of a node, by that at narrower ones
    logits_gathered: bool = False  # every rank gets the logits of the whole vocabulary

    # Kernels.
    # "selective": the core of attention, if its kernels are apart; "pointwise": all but products and attention;
    # "feed_forward": that, or the experts; "operators": pointwise ones, and every second
    # product (torchtitan's); "full": whole layers.
    recompute: Literal["none", "selective", "pointwise", "feed_forward", "operators", "full"] = "none"
    recompute_share: float = 1.0  # of a stage's layers, for full recomputation
    early_stop: bool = False  # recomputation skips a layer's last matmul (torch.utils.checkpoint without reentrance)
    attention: str = "flash"  # "unfused", or a key of attention.KERNELS; "flash3" is cuDNN's kernel too
    masked: bool = False  # attention gets its mask as a tensor, so it also computes what a causal mask leaves out
    # Whose pointwise kernels are counted one by one, a key of costs.EAGER; by default they are fused, times a constant.
    # Queries, keys, values and gate are then products of their own if the layer is gated.
    eager: tuple[str, str] | None = None
    attention_quantised: bool = False  # its products are in fp8
    graphs: Literal["none", "attention", "all"] = "none"  # what CUDA graphs launch instead of the host
    cross_entropy: str = "megatron"  # a key of cross_entropy.CROSS_ENTROPIES
    # Bytes per parameter of casts and copies in a micro-batch; by default those of costs.accumulate or costs.flatten.
    parameter_bytes_moved: float | None = None
    optimizer_bytes: float = MEGATRON_ADAM  # what the optimizer moves for one parameter
    moment_bytes: float = MOMENTS  # of Adam's two moments, for one parameter
    master_bytes: float = MASTER  # of the copy of one parameter that Adam steps
    weight_bytes: float = 2.0  # of one weight of a layer as its products read it, in all formats that are kept
    offload: bool = False  # the optimizer's state is on the host, and steps there

    @property
    def samples(self) -> int:
        """The global batch of one step."""
        return self.micro_batch * self.accumulation * self.layout.data_ranks

    def tokens(self, stack: LayerStack) -> int:
        """The tokens of a micro-batch that a rank has in the layers of a stack."""
        return self.micro_batch * (self.target if stack.target else self.sequence) // self.context

    @property
    def shards(self) -> int:
        """The ranks that divide what is sharded: the layout's own, or all with other data or other tokens."""
        return (self.layout.shards if self.layout.shards > 1 else self.layout.data_ranks) * self.context

    @property
    def expert_shards(self) -> float:
        """The ranks that divide the sharded state of experts: those of a stage that have the same experts."""
        stage = self.shards * self.layout.tensor
        return max(1.0, stage / (self.experts * self.expert_tensor))

    @property
    def ranks(self) -> int:
        """The world size."""
        return self.layout.pipeline * self.layout.data_ranks * self.layout.tensor * self.context


@dataclass(frozen=True, kw_only=True)
class MachineSetup:
    """Devices and their links: FLOP/s (dense), bytes and bytes per second, in one direction and per device.

    ``matmul_flops`` is the best matmul that anyone measured, ``fp8_flops`` and ``fp4_flops`` those in fewer bits (0: it
    has none). ``network_bandwidth`` is the device's share of its node's network, and ``network_latency`` the factor of
    its messages' latencies. ``multiprocessors`` compute one tile of a matmul each. ``domain`` devices are joined by
    ``link_bandwidth``: a node, or a rack of several.
    """

    name: str
    flops: float
    matmul_flops: float
    memory_bandwidth: float
    memory_bytes: int
    link_bandwidth: float
    network_bandwidth: float
    host_bandwidth: float
    multiprocessors: int
    node: int = 8
    network_latency: float = 1.0
    fp8_flops: float = 0.0
    fp4_flops: float = 0.0
    domain: int = 8
