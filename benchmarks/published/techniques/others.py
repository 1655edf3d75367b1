"""Features of published runs that today's defaults do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from perfsuite.catalog.definitions import Technique

if TYPE_CHECKING:
    import torch


def keep_gradients(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Before torch 2.0 zero_grad() filled gradients with zeros, so they exist in every forward except the first."""
    import torch

    zero = torch.optim.Optimizer.zero_grad
    mock.patch.object(
        torch.optim.Optimizer, "zero_grad", lambda optimizer, set_to_none=False: zero(optimizer, False)
    ).start()
    return model


def keep_softmax_inputs(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Before torch 1.11 softmax kept its input for the backward pass, as well as its output, but never read it.

    pytorch/pytorch issue 49600 describes it, pull request 65242 fixed it. The generated autograd/generated/Functions.h
    has ``SavedVariable self_`` in SoftmaxBackward0 in the wheel of 1.10.2, and no more in that of 1.11.0.
    """
    import torch

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: torch.Tensor, dim: int) -> torch.Tensor:
            output = torch.softmax(input, dim)
            ctx.dim = dim
            ctx.save_for_backward(input, output)
            return output

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
            input, output = ctx.saved_tensors
            return torch._softmax_backward_data(gradient, output, ctx.dim, input.dtype), None

    def softmax(input: torch.Tensor, dim: int, *_: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        if dtype is None and torch.is_autocast_enabled(input.device.type):
            dtype = torch.float32  # torch's "CUDA ops that autocast to float32"
        return Softmax.apply(input if dtype is None else input.to(dtype), dim)

    mock.patch.object(torch.nn.functional, "softmax", softmax).start()
    return model


def add_litgpt_adapters(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """LitGPT's LoRA: rank 8 on queries and values, with a dropout of 0.05 before each (litgpt/finetune/lora.py)."""
    import peft

    from perfsuite.techniques import lora

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
    Technique(name="lean_softmax", slot="softmax", order=51, meaning="Keeps only its output.", default=True),
    Technique(
        name="torch110_softmax",
        slot="softmax",
        order=51,
        meaning="Keeps its input too, as before torch 1.11.",
        applies=keep_softmax_inputs,
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
