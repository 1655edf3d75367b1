"""Tensor parallelism by DeepSpeed: the same numbers as one rank, or a reason."""

import pytest
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

BOUND = 1e-4


@pytest.mark.parametrize(
    ("reference", "cell"),
    slow_unless(
        lambda case: "t5_tiny" in case[0] or "+dp2" in case[1],
        [
            ("llama_tiny-single+nodrop-cpu_x1-b4", "llama_tiny-autotp+nodrop-cpu_x2-b4"),
            ("t5_tiny-single+nodrop-cpu_x1-b4", "t5_tiny-autotp+nodrop-cpu_x2-b4"),
            ("llama_tiny-single+nodrop-cpu_x1-b4", "llama_tiny-autotp+dp2+nodrop-cpu_x4"),
            ("llama_tiny-single+nodrop-cpu_x1-b4", "llama_tiny-autotp+ckpt+nodrop-cpu_x2-b4"),
            ("llama_tiny-single+nodrop-cpu_x1-b4", "llama_tiny-autotp+acc2+nodrop-cpu_x2"),
            ("llama_tiny-single+clip+nodrop-cpu_x1-b4", "llama_tiny-autotp+clip+nodrop-cpu_x2-b4"),
        ],
    ),
)
def test_autotp_agrees_with_single(measure, reference, cell):
    """Divided matrices compute the loss and the gradient of the whole ones."""
    single, parallel = measure(reference), measure(cell)

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND


def test_a_rank_holds_its_part(measure):
    """All but embeddings and norms is half as large on two ranks: parameters, gradients and optimizer state."""
    whole = measure("llama_tiny-single+nodrop-cpu_x1-b4").readings
    half = measure("llama_tiny-autotp+nodrop-cpu_x2-b4").readings
    uncut = 4 * (512 * 64 + 5 * 64)

    for name, copies in (("parameters", 1), ("gradients", 1), ("optimizer_state", 2)):
        expected = (whole[f"{name}_bytes"].value - copies * uncut) / 2 + copies * uncut
        assert abs(half[f"{name}_bytes"].value - expected) < 1024


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("gpt2_tiny-autotp-cpu_x2", "AutoTP not supported for model"),
        ("bloom_tiny-autotp-cpu_x2", "but not transformers' attention biases"),
        ("llama_tiny-autotp-cpu_x4", "2 heads, not divisible by 4 ranks"),
        ("llama_tiny-autotp-cpu_x1", "at least 2 ranks"),
        ("llama_tiny-autotp+offload-cpu_x2", "offloads only with ZeRO"),
        ("llama_tiny-autotp+fp16-cpu_x2", "does not scale the loss, but divides the gradients"),
        ("llama_tiny-autotp+bf16+clip-cpu_x2", "clips by rank 0's part of the norm"),
    ],
)
def test_autotp_is_refused(catalog, cell, reason):
    """What DeepSpeed cannot divide is refused before any rank starts."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
