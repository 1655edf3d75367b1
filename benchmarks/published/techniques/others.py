"""What published runs had that today's defaults have not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from perfsuite.catalog.definitions import Technique

if TYPE_CHECKING:
    import torch


def keep_gradients(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Before torch 2.0 zero_grad() filled gradients with zeros, so they are there in every forward but the first."""
    import torch

    zero = torch.optim.Optimizer.zero_grad
    mock.patch.object(
        torch.optim.Optimizer, "zero_grad", lambda optimizer, set_to_none=False: zero(optimizer, False)
    ).start()
    return model


def add_litgpt_adapters(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """LitGPT's LoRA: rank 8 on queries and values, with a dropout of 0.05 before each (litgpt/finetune/lora.py)."""
    import peft

    from perfsuite.training.techniques import lora

    config = peft.LoraConfig
    with mock.patch.object(peft, "LoraConfig", lambda **options: config(**options, lora_dropout=0.05)):
        return lora.add_adapters(session, model)


TECHNIQUES = (
    Technique(name="freed_gradients", slot="gradients", order=46, meaning="Freed after the step.", default=True),
    Technique(
        name="kept_gradients",
        slot="gradients",
        order=46,
        meaning="Gradients stay and are filled with zeros, as torch 1 did.",
        applies=keep_gradients,
    ),
    Technique(
        name="lora_litgpt",
        slot="trained part",
        order=6,
        meaning="LoRA as LitGPT has it.",
        applies=add_litgpt_adapters,
        packages=("peft",),
    ),
)
