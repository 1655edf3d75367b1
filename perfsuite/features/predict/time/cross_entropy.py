"""The cross entropy over the vocabulary: what the kernels of each software move and hold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CrossEntropy:
    """Bytes per logit: what its kernels move, forward and backward, what is held at its peak, and what was freed before
    in a block that none of them fits into.
    """

    moved: float
    held: float
    freed: float = 0.0


CROSS_ENTROPIES = {
    # Cast (6), maximum (4), difference (8), exponential (8), sum (4), quotient (8), then product (8) and cast (6) in
    # backward: core/tensor_parallel/cross_entropy.py of NVIDIA/Megatron-LM. Held: logits in half precision, their fp32
    # copy, and its gradient.
    "megatron": CrossEntropy(52.0, 10.0),
    "nanotron": CrossEntropy(52.0, 12.0),  # and the gradient in half precision
    # torch's, without compilation: cast (6), log-softmax (8), and in backward the loss (4), log-softmax (12) and cast
    # (6). Held: log-softmax, its gradient and that of its input, in fp32. torchtitan has deleted the logits by then.
    "torch": CrossEntropy(36.0, 12.0, freed=2.0),
    "transformers": CrossEntropy(36.0, 14.0),  # the output of the model keeps the logits, in half precision
    # Compiled: logits are read for the maximum, for the sum, and in backward, which writes their gradient. Held are
    # these two, in half precision.
    "compiled": CrossEntropy(8.0, 4.0),
    # Transformer Engine's: logits are read for maximum and sum (2), and replaced by their gradient (4), which the loss
    # scales (4): transformer_engine/pytorch/cross_entropy.py and common/triton/cross_entropy.py.
    "fused": CrossEntropy(10.0, 2.0),
    # The same of some tokens at once (Liger's, torch's linear_cross_entropy): no logits are whole.
    "chunked": CrossEntropy(10.0, 0.0),
}


def head_bytes(tokens: int, vocabulary: int, cross_entropy: str = "megatron") -> float:
    """Bytes that a cross entropy moves, forward and backward, per rank."""
    return CROSS_ENTROPIES[cross_entropy].moved * tokens * vocabulary
