"""What one device computes: matmuls, attention, elementwise traffic, the optimizer, offload. Seconds, from arguments.

Every function is pure and takes rates that are already achievable: a peak times a constant of ``constants.py``.
"""

from dataclasses import dataclass
from functools import lru_cache

# cuBLAS's usual output tiles (docs.nvidia.com, "Matrix Multiplication Background", section 2.1: 256×128 is the most
# efficient, since a tile of m×n loads m+n elements for m·n products).
TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
HALF_INTENSITY = 16.0  # products per loaded element at which a tile computes at half its rate
# Seconds in which a tile's pipeline fills and drains. The 15 products on a B200 with a k of at most 1,024 need 130 to
# 170 elements of k more than they have (MooreThreads/SimuMax at 4dcaae513b), which is this time at their tiles' rate.
FILL = 1.3e-6
_BEST = 256 * 128 / (256 + 128)


def _tile_rate(rows: int, columns: int) -> float:
    """A tile's rate relative to 256×128: intensity / (intensity + HALF_INTENSITY)."""
    intensity = rows * columns / (rows + columns)
    return (intensity / (intensity + HALF_INTENSITY)) * (_BEST + HALF_INTENSITY) / _BEST


_TILES = tuple((rows, columns, _tile_rate(rows, columns)) for rows, columns in TILES)


@dataclass(frozen=True)
class Product:
    """``groups`` products of (m, k) by (k, n)."""

    m: int
    n: int
    k: int
    groups: int = 1


@lru_cache(maxsize=65536)
def waves(product: Product, multiprocessors: int, fill: float) -> float:
    """The work of a product as the hardware does it, in FLOPs at the rate of the best tile: at least 2mnk.

    Tile quantisation rounds m and n up to whole tiles; wave quantisation rounds the tiles up to a multiple of the
    multiprocessors (the same source, sections 2.2 and 3). A deep k is split so that a last wave is not idle, at the
    cost of another ``fill``, in elements of k. The library takes the best tile. Grouped products share their waves.
    """
    k, best = product.k, float("inf")
    for rows, columns, rate in _TILES:
        tiles = product.groups * -(-product.m // rows) * -(-product.n // columns)
        for split in (1, 2, 4):
            if split > 1 and k < 1024 * split:
                break
            whole = -(-tiles * split // multiprocessors) * multiprocessors
            best = min(best, 2.0 * rows * columns * (k / split + fill) * whole / rate)
    return best


ALIGNED = 8  # elements of half precision in the 16 bytes that tensor cores load at once
UNALIGNED = 2.0  # "Matrix Multiplication Background", section 2.1: at least half of the rate is lost without alignment


def matmul(product: Product, flops: float, bandwidth: float, multiprocessors: int, element: float = 2.0) -> float:
    """Seconds of a product: the roofline of its tiles and of the bytes that it must move.

    arXiv 2407.13853 (NeuSight) predicts per tile and wave in the same way. ``flops`` is the rate that a large product
    reaches, ``bandwidth`` what a copy reaches. Operands have ``element`` bytes, the result is in half precision.
    """
    m, n, k = product.m, product.n, product.k
    if not (m and n and k):
        return 0.0
    moved = product.groups * (element * (m * k + k * n) + 2.0 * m * n)
    fill = FILL * flops / (multiprocessors * 2 * 256 * 128)
    work = waves(product, multiprocessors, fill) * (UNALIGNED if n % ALIGNED or k % ALIGNED else 1.0)
    return max(work / flops, moved / bandwidth)


def layer_flops(m: int, n: int, k: int) -> float:
    """2mnk, the FLOPs of a product without any rounding."""
    return 2.0 * m * n * k


def flash_attention(queries: int, keys: float, width: float, causal: bool, flops: float) -> float:
    """Forward seconds of a fused kernel: 4·q·k·width FLOPs, half of them if causal (arXiv 2307.08691, section 4.1).

    ``queries`` counts all of a micro-batch, ``keys`` those of one sequence, ``width`` all heads of the rank, each as
    wide as the kernel that takes it. Backward has five products to forward's two: 2.5 times as much.
    """
    return 4.0 * queries * keys * width * (0.5 if causal else 1.0) / flops


BACKWARD_FLASH = 2.5


DEPTH, COLUMNS = 32, 64  # to which kernels round a head's width up: one step of a tile's depth, the narrowest tile


@dataclass(frozen=True)
class AttentionShape:
    """The scores of a micro-batch: all its ``queries`` by the ``keys`` of one sequence, in the rank's ``heads``."""

    queries: int
    keys: int
    heads: int
    head_width: int

    @property
    def scores(self) -> float:
        """How many scores there are."""
        return float(self.queries) * self.keys * self.heads


def unfused_attention(shape: AttentionShape, flops: float, bandwidth: float, *, backward: bool, dropout: bool) -> float:
    """Seconds of attention as separate kernels: two batched products (four in backward), and the scores' traffic.

    Forward writes scores (2 bytes), reads and writes them in the softmax (4) and reads them for the values (2); dropout
    reads, writes and keeps a mask (5). Backward: 12 and 5. Softmax does not halve causal scores. A head's width is the
    depth of one product (two in backward), and the columns of the others, which fill whole tiles.
    """
    scores, width = shape.scores, shape.head_width
    depth, columns = -(-width // DEPTH) * DEPTH, -(-width // COLUMNS) * COLUMNS
    products = (2.0 * depth + 6.0 * columns if backward else 2.0 * (depth + columns)) * scores / flops
    products *= UNALIGNED if width % ALIGNED else 1.0
    bytes_ = (12 if backward else 8) + (5 if dropout else 0)
    return products + bytes_ * scores / bandwidth


def outside_bytes(tokens: int, hidden: int, dropout: bool) -> float:
    """Forward bytes of a layer's pointwise kernels outside the tensor-parallel region.

    Two norms read and write (8 per element), two residual sums read two and write one (12), dropout adds a mask (2).
    arXiv 2205.05198, section 4.1, has the same kernels.
    """
    return tokens * hidden * (22.0 if dropout else 20.0)


def inside_bytes(tokens: int, inner: float, heads_width: int, gated: bool, normed: bool = False) -> float:
    """Forward bytes of a layer's pointwise kernels inside the tensor-parallel region.

    The activation reads and writes the feed-forward, which is ``inner`` wide (4 per element, 6 if gated). Queries and
    keys, ``heads_width`` wide, have rotary or bias and transpose (8), and norms if they are ``normed`` (4).
    The same section of arXiv 2205.05198.
    """
    return tokens * ((6.0 if gated else 4.0) * inner + (12.0 if normed else 8.0) * heads_width)


def recurrent_bytes(tokens: int, width: float) -> float:
    """Forward bytes of a recurrence's kernels between its products, which are ``width`` wide together.

    Convolution, scan and gated norm each read and write them (4 per element and kernel), and chunks of tokens pass
    states on in fp32: arXiv 2405.21060, section 7. A fitted constant multiplies them.
    """
    return 12.0 * tokens * width


BACKWARD_ELEMENTWISE = 1.5  # reads a gradient besides the kept input: three accesses to forward's two


@dataclass(frozen=True)
class Eager:
    """Bytes per token of a layer's pointwise kernels in transformers, without dropout: factors of hidden and inner
    width, and of the width of queries and keys, forward and backward.
    """

    hidden: tuple[float, float]
    inner: tuple[float, float]
    pairs: tuple[float, float]

    def bytes(self, tokens: int, hidden: int, inner: int, pairs: int) -> tuple[float, float]:
        """Bytes of ``tokens``, forward and backward."""
        forward, backward = (
            tokens * (self.hidden[at] * hidden + self.inner[at] * inner + self.pairs[at] * pairs) for at in (0, 1)
        )
        return forward, backward


NORM = (36.0, 80.0)  # of one of Llama's norms, forward and backward: see below
# Counted in modeling_gpt2.py and modeling_llama.py of transformers 5, by whether autocast keeps hidden states in fp32.
# GPT forward: norms 8 (16 in fp32), sums 12 (20), casts to half (12), gelu 4 per inner. Backward: norms 12 (24), sums
# 12 (24), casts (24), gradients of biases 10, those of queries, keys and values joined 12; gelu 6, bias 2 per inner.
# Llama forward: norms are six kernels, 72 (56 in fp32), sums 12 (20), a cast for each of five products (30); silu and
# product 10 per inner; rotary is a chain. Backward: norms 160, sums 42 (84), casts (42); 18 per inner; rotary again.
EAGER = {
    ("gpt", "half"): Eager((20.0, 46.0), (4.0, 8.0), (0.0, 0.0)),
    ("gpt", "autocast"): Eager((48.0, 94.0), (4.0, 8.0), (0.0, 0.0)),
    ("llama", "half"): Eager((84.0, 202.0), (10.0, 18.0), (20.2, 26.2)),
    ("llama", "autocast"): Eager((106.0, 286.0), (10.0, 18.0), (36.4, 58.4)),
}


def embedding_gradient_bytes(shared: float, held: float, element: int, tied: bool) -> float:
    """Bytes of an embedding's gradient of ``element`` bytes: torch writes it dense, and whole where it is ``shared``.

    If it is tied to the head, the gradients of both are added: two reads and a write of what a rank has ``held``.
    """
    return element * (shared + (3.0 * held if tied else 0.0))


def accumulate(parameters: float, gradient_bytes: int, bandwidth: float) -> float:
    """Seconds in which one micro-batch's gradients are added to those before.

    The new gradient is read (2 bytes), the sum is read and written (2 × ``gradient_bytes``).
    """
    return (2.0 + 2.0 * gradient_bytes) * parameters / bandwidth


def flatten(parameters: float, gradient_bytes: int, bandwidth: float) -> float:
    """Seconds in which a layer's gradients are laid out for a reduce-scatter: FSDP's copies of whole gradients.

    They are joined into one flat tensor (read and written: 4 bytes) and, if they are reduced in fp32, cast (2 and 4).
    torch/distributed/fsdp/_flat_param.py and _runtime_utils.py.
    """
    return (4.0 + (2.0 + gradient_bytes if gradient_bytes > 2 else 0.0)) * parameters / bandwidth


MEGATRON_ADAM = 40.0  # bytes per parameter
# What Megatron's options add, in bytes per gradient or parameter: clip_grads.py, finalize_model_grads.py and
# training/utils.py of NVIDIA/Megatron-LM. Clipping reads and writes gradients whose norm is too large. Counting zeros
# compares (4 and 1) and sums (1). A loss per token divides gradients. The norm of parameters reads the master copy.
MEGATRON_CLIP, MEGATRON_ZEROS, MEGATRON_PER_TOKEN, MEGATRON_NORM = 8.0, 6.0, 8.0, 4.0
# torch's AdamW with foreach, the default on CUDA, is eight kernels. Weight decay and both moments' decay: 8, 12 and 8;
# the square's sum 12, its root 8, the corrections 8 and 8, the update 16 (torch/optim/adamw.py).
FOREACH_ADAM = 80.0
FUSED_ADAM = 28.0  # one kernel reads parameter, gradient and moments (16) and writes all but the gradient (12)


MOMENTS = 8.0  # bytes per parameter of Adam's two moments in fp32
MASTER = 4.0  # and of the fp32 copy of a parameter that it steps
# In bf16, and of the copy the 16 bits that a bf16 parameter lacks: --use-precision-aware-optimizer of Megatron-core
# with --exp-avg-dtype and --exp-avg-sq-dtype bf16, and store_param_remainders of Transformer Engine's FusedAdam
# (core/optimizer/optimizer_config.py of NVIDIA/Megatron-LM, pytorch/optimizers/fused_adam.py).
MOMENTS_BF16, REMAINDER = 4.0, 2.0
MOMENTS_8BIT = 2 * (1 + 4 / 256)  # in 8 bits, with a scale in fp32 for each block of 256 (arXiv 2110.02861, section 2)


def optimizer(parameters: float, bandwidth: float, bytes_: float = MEGATRON_ADAM) -> float:
    """Seconds of Adam on a device. Megatron's needs 40 bytes per parameter.

    Master, two moments are read and written (24), the gradient is read (4), the half-precision copy is written (2); the
    gradient is read for its norm (4), and zeroed (4) before the next step; 2 to cast it.
    """
    return bytes_ * parameters / bandwidth


# Parameters per second of an Adam on all cores of a node: 30 bytes each (read 16, written 14) over the 120 GB/s that
# eight or more channels of DDR4 reach. A bound from the memory, not a measurement.
HOST_ADAM = 4.0e9


def offload(parameters: float, host_bandwidth: float, micro_batches: int = 1, devices_per_host: int = 1) -> float:
    """Seconds of an optimizer on the host, and of what is copied there and back.

    Each micro-batch sends its gradients (2 bytes), which the host adds up; the step returns the parameters (2 bytes).
    The devices of a node share its cores: arXiv 2101.06840, section 4.2. The least certain of all costs here: no table
    of this repository has measured it.
    """
    copies = 2.0 * (micro_batches + 1) * parameters / host_bandwidth
    return copies + parameters * devices_per_host / HOST_ADAM
