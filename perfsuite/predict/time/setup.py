"""How a model is trained, and on what: the two inputs of the closed form besides the model's shape."""

from dataclasses import dataclass
from typing import Literal

from perfsuite.catalog.definitions import Layout
from perfsuite.predict.time.costs import MEGATRON_ADAM, MEGATRON_LOGIT

ONE_RANK = Layout()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to train: how the ranks divide the work of a step, and what each does."""

    layout: Layout = ONE_RANK
    sequence: int  # tokens of a sample; behind an encoder, a decoder has ``target``
    target: int = 0
    micro_batch: int = 1  # samples that go through a replica at once, ``accumulation`` times per step
    accumulation: int = 1
    precision: str = "bf16"
    dropout: bool = False

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
    persistent: int = 0  # vectors that are whole although parameters are sharded, each gathered after the step

    # Tensor parallelism.
    sequence_parallel: bool = False
    tensor_overlapped: bool = True  # backward's messages run beside matmuls where they can
    tensor_pipelined: bool = False  # all of them do, cut in pieces (Transformer Engine's userbuffers)
    tensor_gradients: float = 1.0  # backward's all-reduces of a block: one if the block's first layer is one matrix
    tensor_gradient_bytes: int = 2  # per element of them
    logits_gathered: bool = False  # every rank gets the logits of the whole vocabulary

    # Kernels.
    recompute: Literal["none", "selective", "full"] = "none"
    early_stop: bool = False  # recomputation skips a layer's last matmul (torch.utils.checkpoint without reentrance)
    attention: Literal["flash", "flash3", "unfused"] = "flash"  # "flash3": FlashAttention-3 or cuDNN's kernel
    masked: bool = False  # attention gets its mask as a tensor, so it also computes what a causal mask leaves out
    # Whose pointwise kernels are counted one by one, a key of costs.EAGER; by default they are fused, times a constant.
    # Queries, keys, values and gate are then products of their own if the layer is gated.
    eager: tuple[str, str] | None = None
    logit_bytes: float = MEGATRON_LOGIT  # of the cross entropy, per logit
    # Bytes per parameter of casts and copies in a micro-batch; by default those of costs.accumulate or costs.flatten.
    parameter_bytes_moved: float | None = None
    optimizer_bytes: float = MEGATRON_ADAM  # what the optimizer moves for one parameter
    offload: bool = False  # the optimizer's state is on the host, and steps there

    @property
    def samples(self) -> int:
        """The global batch of one step."""
        return self.micro_batch * self.accumulation * self.layout.data_ranks

    @property
    def shards(self) -> int:
        """The ranks that divide what is sharded: the layout's own, or all with other data."""
        return self.layout.shards if self.layout.shards > 1 else self.layout.data_ranks

    @property
    def ranks(self) -> int:
        """The world size."""
        return self.layout.pipeline * self.layout.data_ranks * self.layout.tensor


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices and their links: FLOP/s (dense), bytes and bytes per second, in one direction and per device.

    ``matmul_flops`` is the best matmul that anyone measured. ``network_bandwidth`` is the device's share of its node's
    network, and ``network_latency`` the factor of its messages' latencies. ``multiprocessors`` compute one tile of a
    matmul each.
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
