"""Activation checkpointing as in torchtitan: every second matmul of a layer is computed again."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Technique
from perfsuite.techniques.checkpointing import KEPT, checkpoint

if TYPE_CHECKING:
    import torch


def contexts() -> Any:
    """The kept results of one layer's forward: torchtitan/distributed/activation_checkpoint.py."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = {getattr(torch.ops.aten, name).default for name in KEPT}
    count: collections.Counter[bool] = collections.Counter()

    def policy(context: Any, func: Any, *_: Any, **__: Any) -> Any:
        if func == torch.ops.aten.mm.default:
            count[context.is_recompute] += 1
            if count[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if func in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def apply(session: Any, model: torch.nn.Module) -> torch.nn.Module:
    """Checkpoint every layer in this way."""
    return checkpoint(session, model, context_fn=functools.partial(contexts))


TECHNIQUES = (
    Technique(
        name="ckpt_torchtitan",
        slot="activation checkpointing",
        order=30,
        meaning="Each layer's input, its fused attention and every second matmul are kept (torchtitan's 'op' option).",
        applies=apply,
    ),
)
