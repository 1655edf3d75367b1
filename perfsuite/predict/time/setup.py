"""How a model is trained, and on what: the two inputs of the closed form besides the model's shape."""

from dataclasses import dataclass
from typing import Literal

from perfsuite.catalog.definitions import Layout
from perfsuite.predict.time.costs import MEGATRON_ADAM, MEGATRON_LOGIT

ONE_RANK = Layout()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to train: how the ranks divide the work of a step, and what each does.

    ``layout`` has the widths. ``micro_batch`` samples of ``sequence`` tokens (and ``target`` of a decoder behind an
    encoder) go through a replica ``accumulation`` times per step. ``interleave`` is the number of model chunks of a
    pipeline rank. ``balanced``: stages get layers and head by their cost, and not layers alone. ``sharded`` is what the
    ``layout.shards`` ranks divide: "optimizer", "gradients" and "parameters", as an Engine says it. ``scattered``: a
    rank gets its own gradients only, and not the sums of all, as DeepSpeed's ZeRO 1 and 2 have them. ``overlapped``:
    gradients are reduced while backward computes. ``tensor_overlapped``: backward's tensor-parallel messages run beside
    matmuls where they can. ``tensor_pipelined``: all of them do, cut in pieces (Transformer Engine's userbuffers).
    ``sends_overlapped``: a stage computes another chunk while it sends. ``tensor_gradients`` are backward's all-reduces
    of a block, attention or feed-forward, of ``tensor_gradient_bytes`` per element: one if the block's first layer is
    one matrix. ``logits_gathered``: every tensor-parallel rank gets the logits of the whole vocabulary. ``prefetched``:
    backward gathers the next layer's sharded parameters while it computes. ``embedding_gathered``: sharded parameters
    outside of layers are gathered once per micro-batch and their gradients scattered, with nothing to compute next to
    them. The fitted tables' models have small vocabularies, so their rows leave it out. ``eager``: whose pointwise
    kernels are counted one by one, a key of costs.EAGER; by default they are fused, times a constant. ``logit_bytes``
    are those of the cross entropy per logit. ``parameter_bytes_moved`` are the bytes per parameter of casts and copies
    of parameters and gradients in a micro-batch; by default those of costs.accumulate or costs.flatten. ``early_stop``:
    recomputation ends with the last tensor that backward needs, without a layer's last matmul (torch.utils.checkpoint
    without reentrance). ``attention``: "flash3" is FlashAttention-3 or cuDNN's kernel. ``masked``: it gets its mask as
    a tensor, so it also computes what a causal mask leaves out. ``gradient_bytes`` and ``parameter_bytes`` are those of
    one element on the wire. ``optimizer_bytes`` are what the optimizer moves for one parameter. ``gradient_messages``
    are the messages in which whole gradients are reduced. ``offload``: the optimizer's state is on the host, and steps
    there.
    """

    layout: Layout = ONE_RANK
    sequence: int
    target: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    interleave: int = 1
    balanced: bool = False
    sequence_parallel: bool = False
    sharded: frozenset[str] = frozenset()
    scattered: bool = True
    overlapped: bool = False
    tensor_overlapped: bool = True
    tensor_pipelined: bool = False
    sends_overlapped: bool = False
    tensor_gradients: float = 1.0
    tensor_gradient_bytes: int = 2
    logits_gathered: bool = False
    recompute: Literal["none", "selective", "full"] = "none"
    prefetched: bool = True
    eager: tuple[str, str] | None = None
    logit_bytes: float = MEGATRON_LOGIT
    parameter_bytes_moved: float | None = None
    embedding_gathered: bool = False
    early_stop: bool = False
    attention: Literal["flash", "flash3", "unfused"] = "flash"
    masked: bool = False
    precision: str = "bf16"
    gradient_bytes: int = 2
    parameter_bytes: int = 2
    gradient_messages: int = 1
    optimizer_bytes: float = MEGATRON_ADAM
    dropout: bool = False
    offload: bool = False

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
