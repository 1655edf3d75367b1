"""Frozen matrices in few bits: bitsandbytes' NF4 (arXiv 2305.14314) and LLM.int8 (arXiv 2208.07339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.errors import Unsupported, WrongEngine

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

PEFT = {4: "Linear4bit", 8: "Linear8bitLt"}  # the layers of peft that have adapters on such matrices


def quantize(session: Session, model: Any, bits: int) -> None:
    """Replace linear layers but the head, in place, and in 4 bits the stacked matrices of experts too. What else is
    frozen stays as it is.

    Engines that divide parameters flatten or gather them with others of their dtype, so 4 bits are then packed into the
    compute dtype (arXiv 2305.14314 leaves it open; bitsandbytes' ``quant_storage``). Raises Unsupported for a model
    without linear layers.
    """
    import torch

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    linears = {name: one for name, one in model.named_modules() if type(one) is torch.nn.Linear and one is not head}
    if not linears:
        raise Unsupported(f"bitsandbytes quantizes torch.nn.Linear, and {type(model).__name__} has none.")
    for name, old in linears.items():
        new = _four(session, old) if bits == 4 else _eight(session, old)
        new.bias = old.bias
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new.to(session.device))  # which quantizes it
    if bits == 4:
        _quantize_experts(session, model)
    setattr(model, f"is_loaded_in_{bits}bit", True)  # as transformers marks it: by this, peft chooses its layers


def _four(session: Session, old: torch.nn.Linear) -> Any:
    import bitsandbytes
    import torch

    divided = "parameters" in session.strategy.engine.shards
    options: Any = {
        "compress_statistics": session.recipe.double_quantization,
        "quant_type": "nf4",
        "quant_storage": session.compute_dtype if divided else torch.uint8,
    }
    new = bitsandbytes.nn.Linear4bit(
        old.in_features, old.out_features, False, session.compute_dtype, device="meta", **options
    )
    new.weight = bitsandbytes.nn.Params4bit(old.weight.data, requires_grad=False, module=new, **options)
    return new


def _quantize_experts(session: Session, model: Any) -> None:
    """transformers 5 stacks experts' matrices in one parameter, which bitsandbytes makes whole when it is read."""
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    stacked = [
        (module, name)
        for module in model.modules()
        for name, one in module.named_parameters(recurse=False)
        if one.dim() == 3 and type(module).__module__.startswith("transformers.")
    ]
    for module, name in stacked:
        replace_parameter_4bit(module, name, session.recipe.double_quantization, "nf4")


def _eight(session: Session, old: torch.nn.Linear) -> Any:
    import bitsandbytes

    new = bitsandbytes.nn.Linear8bitLt(
        old.in_features, old.out_features, False, has_fp16_weights=False, threshold=6.0, device="meta"
    )
    new.weight = bitsandbytes.nn.Int8Params(old.weight.data, requires_grad=False, has_fp16_weights=False)
    return new


def check(model: torch.nn.Module, bits: int) -> None:
    """Raises WrongEngine unless peft's adapters are on quantized matrices alone."""
    kinds = {type(one).__name__ for one in model.modules() if hasattr(one, "lora_A")}
    places = {type(one).__module__ for one in model.modules() if hasattr(one, "lora_A")}
    if kinds != {PEFT[bits]} or places != {"peft.tuners.lora.bnb"}:
        raise WrongEngine(f"Adapters must be on {bits}-bit matrices, but they are of {', '.join(sorted(kinds))}.")
