"""The formats of products: what an operand has in bytes, and what it costs to bring one into its format.

Weights, norms, attention and the head stay in half precision; the products of layers are in the format. A format that a
device cannot multiply is refused where a setup is made.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """``rate`` is the key of a device's products, ``element`` an operand's bytes, ``copies`` those of a weight by rows
    and by columns with its scales, as backward multiplies the transposed one.

    ``cast`` are the bytes that quantising one element moves: a half-precision element is read, and written once by rows
    and once by columns, since backward multiplies the transposed one. ``columns`` are those of the latter, which no
    one needs if weights are frozen. ``apart`` are those of kernels without fusion.
    """

    name: str
    rate: str
    element: float
    cast: float = 0.0
    apart: float = 0.0
    copies: float = 0.0
    columns: float = 0.0


PRECISIONS = {
    "bf16": Precision("bf16", "half", 2.0),
    "fp16": Precision("fp16", "half", 2.0),
    # Scaled per tensor: the kernel before finds its largest value; read (2), and written twice (1 and 1).
    # Apart: absolute values (4) and their maximum (2), then scaled in fp32 (6), clamped (8) and cast (5).
    "fp8": Precision("fp8", "fp8", 1.0, 4.0, 25.0, 2.0, 1.0),
    # Blocks of 32 with a scale each: read (2), written twice (1 and 1) with scales (OCP Microscaling Formats, 5.1).
    "mxfp8": Precision("mxfp8", "fp8", 1.0, 4.1, 25.0, 2 + 2 / 32, 1 + 1 / 32),
    # Blocks of 16 and a scale per tensor: read for it (2); read (2) and written (0.5); read, Hadamard-transformed and
    # written by columns (2 and 0.5), with scales (arXiv 2509.25149, section 4).
    "nvfp4": Precision("nvfp4", "fp4", 0.5, 7.2, 25.0, 1 + 2 / 16, 2.6),
}

TRANSPOSES = 10.0  # compute capability from which on products of a scale per tensor read operands in any order


def weight_bytes(precision: str, gathered: int, capability: float) -> float:
    """Bytes of a layer's weight that Transformer Engine keeps: in half precision, and in the format of its products,
    which it caches for all micro-batches. Without the former if parameters are ``gathered`` in one byte.

    --fp8-param-gather of Megatron-core (core/distributed/distributed_data_parallel_config.py of NVIDIA/Megatron-LM);
    is_first_microbatch and is_non_tn_fp8_gemm_supported of transformer_engine/pytorch.
    """
    copies = PRECISIONS[precision].copies
    if precision == "fp8" and capability >= TRANSPOSES:
        copies /= 2
    return copies + (0.0 if copies and gathered == 1 else 2.0)
