"""Adapters of low rank: how wide they are, on which matrices, and what else is trained and kept."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Proposal, Technique

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

ALL = "all-linear"  # peft's own word for every linear layer but the head
ATTENTION = "attention"
ADAPTED = ("lora", "dora", "qlora", "lora_int8")
IN_FOUR_BITS = ("qlora",)


def config_of(session: Session, model: Any, **options: Any) -> Any:
    """peft's configuration for the recipe."""
    import peft

    recipe = session.recipe
    if recipe.trains_tables:
        options["modules_to_save"] = sorted(_tables(model))
    targets = _targets(model, recipe.adapter_targets)
    dropout = recipe.adapter_dropout
    return peft.LoraConfig(r=recipe.adapter_rank, target_modules=targets, lora_dropout=dropout, **options)


def _targets(model: Any, asked: str) -> str | list[str]:
    """What peft adapts: its choice for the architecture, or every linear layer where it has none.

    Of a model with an encoder of images, its choice is for the layers that text passes.
    """
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    if asked == ATTENTION:
        return sorted(_of_attention(model))
    text = model.config.get_text_config(decoder=True) if hasattr(model.config, "get_text_config") else model.config
    usual: Any = USUAL.get(model.config.model_type) or USUAL.get(text.model_type)
    if asked == ALL or usual is None:
        return ALL
    if isinstance(usual, str) or text is model.config or text.is_encoder_decoder:
        return usual  # type: ignore[no-any-return]
    inside = {id(module) for module in model.get_decoder().modules()}
    return [name for name, module in model.named_modules() if id(module) in inside and name.rpartition(".")[2] in usual]


def _of_attention(model: torch.nn.Module) -> Iterator[str]:
    """The names of all linear layers in modules that transformers calls attention."""
    import torch
    from transformers.pytorch_utils import Conv1D

    modules = dict(model.named_modules())
    for name, module in modules.items():
        parents = [modules[name[:end]] for end, letter in enumerate(name) if letter == "."]
        if isinstance(module, torch.nn.Linear | Conv1D) and any(
            "Attention" in type(other).__name__ for other in parents
        ):
            yield name


def _tables(model: Any) -> Iterator[str]:
    """The names of the vocabulary's tables: the embedding, and the head if it has one of its own."""
    found = {id(one) for one in (model.get_input_embeddings(), model.get_output_embeddings()) if one is not None}
    yield from {name.rpartition(".")[2] for name, module in model.named_modules() if id(module) in found}


def why_not(proposal: Proposal, *, name: str, of: tuple[str, ...] = ADAPTED) -> str:
    """It must have something to change."""
    if proposal.techniques.isdisjoint(of):
        return f"{name} says how adapters are made, and there are none: add +{of[0]}."
    return ""


def why_no_tables(proposal: Proposal) -> str:
    """peft's copies of the tables have names of their own, by which no stage is cut."""
    if proposal.engine.dimension == "pipeline":
        return f"{proposal.engine.name} cuts a model by its parameters' names, and peft gives trained tables others."
    return why_not(proposal, name="train_tables")


def _option(name: str, meaning: str, slot: str, of: tuple[str, ...] = ADAPTED, **more: Any) -> Technique:
    more.setdefault("why_not", functools.partial(why_not, name=name, of=of))
    return Technique(name=name, meaning=meaning, slot=slot, order=7, **more)


TECHNIQUES = (
    _option("rank", "rank<n>: the adapters' rank, instead of peft's 8.", "adapters' rank", parameter="adapter_rank"),
    _option(
        "all_linear",
        "Adapters are on all linear layers but the head.",
        "adapted layers",
        sets={"adapter_targets": ALL},
    ),
    _option(
        "all_attention",
        "Adapters are on all linear layers of attention.",
        "adapted layers",
        sets={"adapter_targets": ATTENTION},
    ),
    _option(
        "lora_dropout",
        "Each adapter drops 5 % of its input (arXiv 2305.14314, appendix B.2).",
        "adapters' dropout",
        sets={"adapter_dropout": 0.05},
    ),
    _option(
        "train_tables",
        "Embedding and head are trained whole, too (peft's modules_to_save).",
        "trained tables",
        sets={"trains_tables": True},
        why_not=why_no_tables,
    ),
    _option(
        "frozen_fp32",
        "The frozen weights are in fp32, whatever the arithmetic has.",
        "frozen weights",
        of=("lora", "dora"),
        sets={"frozen_half": False},
    ),
    _option(
        "plain_scales",
        "The scales of 4-bit matrices are in fp32, and not quantized again.",
        "frozen weights",
        of=IN_FOUR_BITS,
        sets={"double_quantization": False},
    ),
)
