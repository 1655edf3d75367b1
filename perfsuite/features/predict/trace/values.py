"""Values of fake tensors: a few of them decide which code runs next, so these few are really computed.

Token ids, masks and indices are small, so everything computed from them alone is really computed too, alongside the
fake tensor. So ``mask.all()`` gives the same answer as in a run. The values of floats are not known, except that all
are finite: no loss scale overflows, and every check finds that.
"""

import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_ELEMENTS = 2**17  # a mask of all pairs of tokens is larger, and its values are not needed
_UNKNOWN_FLOAT, _UNKNOWN_INT, _UNKNOWN_BOOL = 1.0, 0, False


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """The value of a fake tensor, unless it has been written to since."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    value, version = getattr(tensor, "perfsuite_value", (None, 0))
    return value if value is not None and tensor._version == version else None


def remember(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Remember the value of a fake tensor."""
    tensor.perfsuite_value = (value, tensor._version)  # type: ignore[attr-defined]


def follow(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Compute the value of ``out`` too, if it is small, has integers, and all of its inputs are known."""
    if isinstance(out, FakeTensor) and out.dtype == torch.bool:
        _follow_finite(func, args, kwargs, out)
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
        remember(out, func(*args, **kwargs))


def everywhere(tensor: torch.Tensor) -> bool | None:
    """The common value of all elements of a fake bool tensor, if known and not overwritten since."""
    value, version = getattr(tensor, "perfsuite_everywhere", (None, 0))
    return value if tensor._version == version else None


def _follow_finite(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Remember the value of every element of ``out``, if it says whether floats are finite."""
    value, asked = None, args[0] if args else None
    if isinstance(asked, torch.Tensor) and asked.dtype.is_floating_point:
        itself = len(args) > 1 and args[1] is asked  # only NaN is not equal to itself
        infinite = len(args) > 1 and isinstance(args[1], float) and math.isinf(args[1])
        if func in _FINITE or (func in _EQUAL and itself) or (func in _UNEQUAL and infinite):
            value = True
        elif func in _NOT_FINITE or (func in _UNEQUAL and itself) or (func in _EQUAL and infinite):
            value = False
    elif func.overloadpacket in _OF_BOOLS:
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if inputs and None not in map(everywhere, inputs):
            with unset_fake_temporarily():
                args, kwargs = tree_map_only(
                    torch.Tensor, lambda one: torch.full((1,) * one.dim(), bool(everywhere(one))), (args, kwargs)
                )
                value = bool(func(*args, **kwargs).flatten()[0])
    if value is not None:
        out.perfsuite_everywhere = (value, out._version)


_aten = torch.ops.aten
_FINITE, _NOT_FINITE = (_aten.isfinite.default,), (_aten.isnan.default, _aten.isinf.default)
_EQUAL, _UNEQUAL = (_aten.eq.Tensor, _aten.eq.Scalar), (_aten.ne.Tensor, _aten.ne.Scalar)
_OF_BOOLS = (_aten.mul, _aten.logical_and, _aten.logical_or, _aten.logical_not, _aten.bitwise_not, _aten.any, _aten.all)
_UNINITIALIZED = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)


def existed_before(func: Any, args: Any) -> bool:
    """Whether all inputs are integers of real tensors, like the ranks of a mesh: then the output stays real."""
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    whole = all(type(tensor) is torch.Tensor and not tensor.dtype.is_floating_point for tensor in tensors)
    return bool(tensors) and whole and func is not torch.ops.aten.lift_fresh.default


def item(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """``tensor.item()``: the value if known, or else a finite one without overflow."""
    value = known(args[0])
    if value is not None:
        with unset_fake_temporarily():
            return value.item()
    dtype = args[0].dtype
    if dtype == torch.bool:
        return everywhere(args[0]) or _UNKNOWN_BOOL
    return _UNKNOWN_FLOAT if dtype.is_floating_point else _UNKNOWN_INT


def equal(recorder: Any, func: Any, args: Any, kwargs: Any) -> bool:
    """``torch.equal``: libraries call it on tensors that must be equal on all ranks."""
    return bool(args[0].shape == args[1].shape)


def scales_do_not_overflow(recorder: Any) -> None:
    """GradScaler's check of the gradients: none is infinite. It writes in place and needs no memory."""
    recorder.rules[torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default] = _no_overflow


def _no_overflow(recorder: Any, func: Any, args: Any, kwargs: Any) -> None:
    with unset_fake_temporarily():
        remember(args[1], torch.zeros(()))
