"""Functions of megatron-core that a rank without data cannot run."""

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch


def norms_have_no_values(recorder: Any) -> AbstractContextManager[Any]:
    """Without apex the gradient's norm is one of a list of numbers, which Megatron reads from the device."""
    from megatron.core.optimizer import clip_grads

    def norm(chunk: int, overflow: torch.Tensor, lists: Any, per_tensor: bool, *_: Any) -> tuple[torch.Tensor, None]:
        each = [[torch.norm(tensor) for tensor in tensors] for tensors in lists]
        total = overflow.new_ones(1, dtype=torch.float32)
        del each
        return total, None

    return mock.patch.object(clip_grads, "l2_norm_impl", norm)


PATCHES = (norms_have_no_values,)
