"""Values of fake tensors: few of them decide what code runs next, so those few are computed for real.

Token ids, masks and indices are small; whatever is computed from them alone is computed for real too, beside the fake
tensor. So ``mask.all()`` answers as in a run, and no rule of thumb stands for it. What floats say is not known: no loss
scale overflows and nothing is infinite.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_ELEMENTS = 2**17  # a mask of all pairs of tokens is larger, and nobody asks for its values
_UNKNOWN_FLOAT, _UNKNOWN_INT, _UNKNOWN_BOOL = 1.0, 0, False


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """The value of a fake tensor, unless it was written to since."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    value, version = getattr(tensor, "perfsuite_value", (None, 0))
    return value if value is not None and tensor._version == version else None


def tell(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Remember the value of a fake tensor."""
    tensor.perfsuite_value = (value, tensor._version)  # type: ignore[attr-defined]


def follow(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Compute the value of ``out`` too, if it is small, of whole numbers, and all that it comes from is known."""
    if not isinstance(out, FakeTensor) or out.dtype.is_floating_point or out.numel() > MOST_ELEMENTS:
        return
    if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
        return
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if (not inputs and func in _UNINITIALIZED) or any(
        one.dtype.is_floating_point or known(one) is None for one in inputs
    ):
        return
    with unset_fake_temporarily():
        args, kwargs = tree_map_only(torch.Tensor, known, (args, kwargs))
        tell(out, func(*args, **kwargs))


_UNINITIALIZED = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)


def existed_before(func: Any, args: Any) -> bool:
    """Whether all that goes in are whole numbers of real tensors, as the ranks of a mesh: what comes out stays real."""
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    whole = all(type(one) is torch.Tensor and not one.dtype.is_floating_point for one in tensors)
    return bool(tensors) and whole and func is not torch.ops.aten.lift_fresh.default


def item(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """``tensor.item()``: the value where it is known; else nothing overflows, and all is finite."""
    value = known(args[0])
    if value is not None:
        with unset_fake_temporarily():
            return value.item()
    dtype = args[0].dtype
    if dtype == torch.bool:
        return _UNKNOWN_BOOL
    return _UNKNOWN_FLOAT if dtype.is_floating_point else _UNKNOWN_INT


def equal(recorder: Any, func: Any, args: Any, kwargs: Any) -> bool:
    """``torch.equal``: libraries ask it of what must be equal on all ranks."""
    return bool(args[0].shape == args[1].shape)


def no_overflow(recorder: Any, func: Any, args: Any, kwargs: Any) -> None:
    """GradScaler's check of the gradients: none is infinite. It writes in place and needs no memory."""
    with unset_fake_temporarily():
        tell(args[1], torch.zeros(()))
