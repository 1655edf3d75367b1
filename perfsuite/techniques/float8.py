"""fp8 by torchao (arXiv 2209.05433): matmuls of linear layers in float8, forward and backward, and all else as in bf16.

Weights, inputs and gradients are scaled into float8's range where they are used: a whole tensor, or each row, with one
scale. The head stays in bf16, as in torchtitan. So do linear layers with a size that is no multiple of 16, which
torch's kernel does not multiply. meters/float8_matmuls.py proves that the others are multiplied in float8.
"""

import dataclasses
import functools
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported
from perfsuite.meters.float8_matmuls import linears
from perfsuite.rank.releases import refused
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module

MULTIPLE = 16  # of both sizes of a weight, for torch._scaled_mm


def convert(session: Session, model: Module, *, recipe: str) -> Module:
    """Replace linear layers by torchao's. Raises Unsupported if the model has none that float8 can multiply.

    If FSDP2 gathers weights in float8, one all-reduce after each step finds the scales of all.
    """
    gathers = session.recipe.gathers_float8
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()

    def has_kernel(module: Any, name: str) -> bool:
        return module is not head and all(size % MULTIPLE == 0 for size in module.weight.shape)

    with refused("fp8", "torchao"):
        from torchao.float8 import (
            Float8LinearConfig,
            convert_to_float8_training,
            precompute_float8_dynamic_scale_for_fsdp,
        )

        config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), enable_fsdp_float8_all_gather=gathers)
        convert_to_float8_training(model, module_filter_fn=has_kernel, config=config)
    if not linears(model):
        raise Unsupported(
            f"fp8: torchao replaces torch.nn.Linear layers whose sizes are multiples of {MULTIPLE}, and "
            f"{type(model).__name__} has none besides its head."
        )
    if gathers:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda *_: precompute_float8_dynamic_scale_for_fsdp(model))
    return model


def why_not_gathered(proposal: Proposal) -> str:
    """Only FSDP2 asks a weight what to gather of it."""
    if proposal.engine.keeps != "dtensors" or "parameters" not in proposal.engine.shards:
        return f"{proposal.engine.name} does not ask weights what to gather of them, as FSDP2 does."
    return why_not(proposal)


def why_not(proposal: Proposal) -> str:
    """Divided matrices need plans of torchao; peft and pruning bring layers of their own; a GPU needs its units."""
    if proposal.device is not None and "fp8" not in proposal.device.dense_flops:
        return f"{proposal.device.name} has no float8 arithmetic."
    if "tp" in proposal.techniques or proposal.engine.dimension == "tensor":
        return (
            "transformers' tensor-parallel plan divides torch.nn.Linear layers, and torchao's need plans of their own."
        )
    for name, reason in REFUSED.items():
        if name in proposal.techniques:
            return reason
    return ""


_PRUNED = "torch.nn.utils.prune computes a weight in each forward, and torchao's layer would keep the first."
REFUSED = {
    **dict.fromkeys(
        ("lora", "dora", "qlora"), "peft wraps linear layers in its own before torchao could replace them."
    ),
    "prune": _PRUNED,
    "prune_structured": _PRUNED,
}
_float8 = functools.partial(Technique, slot="precision", order=10, packages=("torchao",), why_not=why_not)
_sets = {"compute_dtype": "bfloat16", "float8": True}
TECHNIQUES = (
    _float8(
        "fp8",
        "Linear layers multiply in float8, with one scale per tensor; all else as bf16 (torchao's tensorwise recipe).",
        sets=_sets,
        applies=functools.partial(convert, recipe="tensorwise"),
    ),
    _float8(
        "fp8_rowwise",
        "Linear layers multiply in float8, with one scale per row; all else as bf16 (torchao's rowwise recipe).",
        sets=_sets,
        applies=functools.partial(convert, recipe="rowwise"),
    ),
    _float8(
        "fp8_gather",
        "As fp8, and FSDP2 gathers the weights of these layers in float8 (torchao's fp8 all-gather).",
        sets=_sets | {"gathers_float8": True},
        applies=functools.partial(convert, recipe="tensorwise"),
        why_not=why_not_gathered,
    ),
    Technique(
        "mxfp8",
        "Linear layers multiply in float8 with one scale per 32 elements (OCP's MX formats).",
        slot="precision",
        order=10,
        refused="its matmuls need a GPU of compute capability 10, which perfsuite has not run on; fp8_rowwise has one "
        "scale per row",
    ),
)
