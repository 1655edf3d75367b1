"""Activation checkpointing: recompute activations in backward instead of keeping them (arXiv 1604.06174)."""

import functools
from contextlib import AbstractContextManager
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import RankError
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module

KEPT = (  # operators of aten; attention is one of these where it is fused
    "mm",
    "addmm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


def checkpoint(session: Session, model: Module, **options: Any) -> Module:
    """Checkpoint each layer in transformers' way. Raises RankError if the model does not support it."""
    enable: Any = getattr(model, "gradient_checkpointing_enable", None)
    if enable is None:
        raise RankError(f"{type(model).__name__} has no gradient_checkpointing_enable(), so it cannot run with ckpt.")
    enable(gradient_checkpointing_kwargs={"use_reentrant": False, **options})
    if not getattr(model, "is_gradient_checkpointing", True):
        raise RankError(f"{type(model).__name__} does not checkpoint although checkpointing is enabled.")
    return model


def checkpoint_selectively(session: Session, model: Module) -> Module:
    """Checkpoint each layer, but keep results that are expensive to compute, like torchtitan's selective checkpointing.

    Batched matmuls are not kept: in attention that is not fused their results grow with the square of the length.
    """
    import torch
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    kept = [getattr(torch.ops.aten, name).default for name in KEPT]
    return checkpoint(session, model, context_fn=functools.partial(create_selective_checkpoint_contexts, kept))


def save_on_host() -> AbstractContextManager[Any]:
    """Tensors that autograd keeps are copied to pinned host memory and back; recomputed ones are not."""
    import torch

    return torch.autograd.graph.save_on_cpu(pin_memory=True)


def needs_two_memories(proposal: Proposal) -> str:
    """A CPU has no second memory for offload."""
    if proposal.device is None:
        return "ckpt_offload moves activations to host memory, but on a CPU they are already there."
    return ""


_checkpointing = functools.partial(Technique, slot="activation checkpointing", order=30)
TECHNIQUES = (
    _checkpointing("no_ckpt", "Every activation that backward needs is kept.", default=True),
    _checkpointing(
        "ckpt", "Only each layer's input is kept; the layer is computed again in backward.", applies=checkpoint
    ),
    _checkpointing(
        "ckpt_selective",
        "Each layer's input and the results of its linear layers and fused attention are kept. The rest is "
        "computed again in backward (arXiv 2205.05198, section 5).",
        applies=checkpoint_selectively,
    ),
    _checkpointing(
        "ckpt_offload",
        "As ckpt, but the kept tensors stay in pinned host memory until backward.",
        sets={"around": save_on_host},
        applies=checkpoint,
        why_not=needs_two_memories,
    ),
)
