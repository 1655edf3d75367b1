"""The formats of products: what an operand has in bytes, and what it costs to bring one into its format.

Weights, norms, attention and the head stay in half precision; the products of layers are in the format. A format that a
device cannot multiply is refused where a setup is made.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """``rate`` is the key of a device's products, ``element`` an operand's bytes.

    ``cast`` are the bytes that quantising one element moves: a half-precision element is read, and written once by rows
    and once by columns, since backward multiplies the transposed one. ``apart`` are those of kernels without fusion.
    """

    name: str
    rate: str
    element: float
    cast: float = 0.0
    apart: float = 0.0


PRECISIONS = {
    "bf16": Precision("bf16", "half", 2.0),
    "fp16": Precision("fp16", "half", 2.0),
    # Scaled per tensor: the kernel before finds its largest value; read (2), and written twice (1 and 1).
    # Apart: absolute values (4) and their maximum (2), then scaled in fp32 (6), clamped (8) and cast (5).
    "fp8": Precision("fp8", "fp8", 1.0, 4.0, 25.0),
    # Blocks of 32 with a scale each: read (2), written twice (1 and 1) with scales (OCP Microscaling Formats, 5.1).
    "mxfp8": Precision("mxfp8", "fp8", 1.0, 4.1, 25.0),
    # Blocks of 16 and a scale per tensor: read for it (2); read (2) and written (0.5); read, Hadamard-transformed and
    # written by columns (2 and 0.5), with scales (arXiv 2509.25149, section 4).
    "nvfp4": Precision("nvfp4", "fp4", 0.5, 7.2, 25.0),
}
