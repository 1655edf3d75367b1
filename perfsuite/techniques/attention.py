"""Attention: the choice among transformers' implementations."""

import functools
from typing import Any

from perfsuite.catalog.definitions import HALF_PRECISION, Proposal, Technique
from perfsuite.errors import RankError
from perfsuite.rank import releases
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module

PROCESSES = ("training", "inference")


def choose(session: Session, model: Module, *, implementation: str) -> Module:
    """Make transformers use that implementation. Raises RankError if it does not, Unsupported if the release cannot."""
    import transformers

    choose: Any = getattr(model, "set_attn_implementation", None)
    if choose is None and isinstance(model, transformers.PreTrainedModel):
        raise releases.lacks(implementation, "transformers", "PreTrainedModel.set_attn_implementation", "4.54.0")
    config: Any = getattr(model, "config", None)
    if choose and config._attn_implementation != implementation:
        choose(implementation)
    if choose is None or config._attn_implementation != implementation:
        raise RankError(
            f"{type(model).__name__} does not support choosing an attention implementation, such as {implementation}."
        )
    return model


def lacks(proposal: Proposal, *, implementation: str) -> str:
    """The model must have the implementation; flash attention also needs a GPU and low precision."""
    model = proposal.model
    if implementation not in model.attentions:
        known = ", ".join(sorted(model.attentions))
        return f"transformers has no {implementation} attention for {model.family}: it has {known}."
    if implementation == "flash_attention_2":
        if proposal.device is None:
            return "flash attention is written for GPUs: on a CPU use sdpa, which has a fused kernel too."
        if not HALF_PRECISION & proposal.techniques:
            return "flash attention computes in bf16 or fp16 only: add +bf16 or +fp16."
    return ""


def _attention(name: str, implementation: str, meaning: str, **more: Any) -> Technique:
    return Technique(
        name=name,
        slot="attention",
        order=35,
        meaning=meaning,
        applies=functools.partial(choose, implementation=implementation),
        why_not=functools.partial(lacks, implementation=implementation),
        processes=PROCESSES,
        **more,
    )


TECHNIQUES = (
    Technique(
        "auto_attention",
        "transformers' default implementation: sdpa if the model supports it.",
        slot="attention",
        order=35,
        default=True,
        processes=PROCESSES,
    ),
    _attention("eager", "eager", "Matmul, softmax, matmul; the scores of all pairs of tokens are kept."),
    _attention("sdpa", "sdpa", "torch's scaled_dot_product_attention, with a fused kernel if possible."),
    _attention(
        "flash",
        "flash_attention_2",
        "FlashAttention-2 of the package flash-attn (arXiv 2307.08691).",
        packages=("flash_attn",),
    ),
)
