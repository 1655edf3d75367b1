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


def unfuse_dropout(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Dropout as three operators whose mask has the dtype of the input, where a trace of CUDA has a byte per element.

    The documentation's own rows tell: 14,949 MiB with a micro-batch of 4 and 8,681 with 1 are 2,089 MiB per sample.
    Masks of a byte give 1,730, masks in the input's dtype 360 more (15 MiB in each of 24 layers), which is 2,090. So
    this is fitted to rows that it is then judged by: docs/memory_published.md gives the error with and without it.
    """
    import torch

    plain = torch.dropout
    mock.patch.object(
        torch.nn.functional,
        "dropout",
        lambda input, p=0.5, training=True, inplace=False: plain(input, p, training),
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
    Technique(name="fused_dropout", slot="dropout kernel", order=51, meaning="The device's own.", default=True),
    Technique(
        name="unfused_dropout",
        slot="dropout kernel",
        order=51,
        meaning="Dropout keeps a mask in the input's dtype.",
        applies=unfuse_dropout,
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
