"""Precision: the dtype of the arithmetic, and how small gradients are kept from vanishing."""

from perfsuite.catalog.definitions import Technique

TECHNIQUES = (
    Technique(
        name="fp32",
        slot="precision",
        processes=("training", "inference"),
        order=10,
        meaning="Parameters, gradients and arithmetic in fp32.",
        default=True,
    ),
    Technique(
        name="bf16",
        slot="precision",
        processes=("training", "inference"),
        order=10,
        meaning="Arithmetic in bf16 over fp32 parameters: autocast, or DeepSpeed's bf16 with fp32 master parameters.",
        sets={"compute_dtype": "bfloat16"},
    ),
    Technique(
        name="fp16",
        slot="precision",
        processes=("training", "inference"),
        order=10,
        meaning="Arithmetic in fp16 with dynamic loss scaling (arXiv 1710.03740).",
        sets={"compute_dtype": "float16", "loss_scaling": True},
    ),
)
