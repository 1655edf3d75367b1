"""Frozen matrices in few bits: bitsandbytes' NF4 (arXiv 2305.14314) and LLM.int8 (arXiv 2208.07339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.errors import Unsupported, WrongEngine

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

OUTLIERS = 6.0  # inputs from which on LLM.int8 multiplies in half precision, as transformers has it
PEFT = {4: "Linear4bit", 8: "Linear8bitLt"}  # the layers of peft that have adapters on such matrices


def quantize(session: Session, model: Any, bits: int) -> None:
    """Replace linear layers but the head, in place, and in 4 bits the stacked matrices of experts too. What else is
    frozen stays as it is.

    4 bits are packed into bytes, and where parameters are divided into the compute dtype: FSDP2 gathers parameters of
    one dtype. Raises Unsupported for a model without linear layers.
    """
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    linears = {
        name: module for name, module in model.named_modules() if type(module) in _kinds() and module is not head
    }
    if not linears:
        raise Unsupported(f"bitsandbytes quantizes linear layers, and {type(model).__name__} has none.")
    for name, old in linears.items():
        # A Conv1D of transformers has its matrix the other way round; transformers turns it, too.
        weight = old.weight.data if hasattr(old, "in_features") else old.weight.data.t().contiguous()
        new = _four(session, weight) if bits == 4 else _eight(weight)
        new.bias = old.bias
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new.to(session.device))  # which quantizes it
    if bits == 4:
        _quantize_experts(session, model)
    setattr(model, f"is_loaded_in_{bits}bit", True)  # as transformers marks it: by this, peft chooses its layers


def _kinds() -> tuple[type, ...]:
    import torch
    from transformers.pytorch_utils import Conv1D

    return torch.nn.Linear, Conv1D


def _four(session: Session, weight: torch.Tensor) -> Any:
    import bitsandbytes
    import torch

    divided = "parameters" in session.strategy.engine.shards
    options: Any = {
        "compress_statistics": session.recipe.double_quantization,
        "quant_type": "nf4",
        "quant_storage": session.compute_dtype if divided else torch.uint8,
    }
    outputs, inputs = weight.shape
    new = bitsandbytes.nn.Linear4bit(inputs, outputs, False, session.compute_dtype, device="meta", **options)
    new.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, module=new, **options)
    return new


def _quantize_experts(session: Session, model: Any) -> None:
    """transformers 5 stacks experts' matrices in one parameter, which bitsandbytes makes whole when it is read."""
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    stacked = [
        (module, name)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() == 3 and type(module).__module__.startswith("transformers.")
    ]
    for module, name in stacked:
        replace_parameter_4bit(module, name, session.recipe.double_quantization, "nf4")


def _eight(weight: torch.Tensor) -> Any:
    import bitsandbytes

    outputs, inputs = weight.shape
    options: Any = {"has_fp16_weights": False, "threshold": OUTLIERS, "device": "meta"}
    new = bitsandbytes.nn.Linear8bitLt(inputs, outputs, False, **options)
    new.weight = bitsandbytes.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    return new


def check(model: torch.nn.Module, bits: int) -> None:
    """Raises WrongEngine unless peft's adapters are on quantized matrices alone."""
    kinds = {type(module).__name__ for module in model.modules() if hasattr(module, "lora_A")}
    places = {type(module).__module__ for module in model.modules() if hasattr(module, "lora_A")}
    if kinds != {PEFT[bits]} or places != {"peft.tuners.lora.bnb"}:
        raise WrongEngine(f"Adapters must be on {bits}-bit matrices, but they are of {', '.join(sorted(kinds))}.")
