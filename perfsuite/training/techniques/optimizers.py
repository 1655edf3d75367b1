"""Optimizers: what a rank keeps per parameter, and how it steps."""

from typing import Any

from perfsuite.catalog.definitions import Technique


def adamw(parameters: Any, learning_rate: float) -> Any:
    """torch's AdamW with its own default implementation (a loop on a CPU, foreach on CUDA)."""
    import torch

    return torch.optim.AdamW(parameters, lr=learning_rate)


TECHNIQUES = (
    Technique(
        name="adamw",
        slot="optimizer",
        order=20,
        meaning="AdamW, two fp32 moments per parameter (arXiv 1711.05101).",
        default=True,
        sets={"optimizer": adamw},
    ),
)
