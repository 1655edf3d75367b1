"""A fake mode that answers an operator at once if it has answered the same before.

torch's own mode has a cache too (torch/_subclasses/fake_tensor.py). Its keys and results take most of a trace's time:
they serve symbolic shapes and sparse tensors, which a trace does not have. What torch keeps in its cache is kept here
under a shorter key. So torch still decides what may be kept.

A loop over the tokens of a sample calls the same operators on the part of each token, and an optimizer with one flat
buffer on the part of each parameter. Where a part begins changes no result but that of a view, which begins as much
later. So the key leaves it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from perfsuite.features.predict.trace.answers import Answer, Argument, Made, Plain, Several, decoded, encoded

VALUES = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))
_DEVICE = torch.ops.prim.device.default
_aten = torch.ops.aten
_INDEXED = {_aten.select.int: 2, _aten.select_backward.default: 3}  # of one part, and which argument says which
# Views that begin as much later in the storage as what they view.
_MOVING = frozenset(
    (
        *(_aten.select.int, _aten.slice.Tensor, _aten.split.Tensor, _aten.split_with_sizes.default, _aten.unbind.int),
        *(_aten.view.default, _aten.expand.default, _aten.unsqueeze.default, _aten.squeeze.default),
        *(_aten.squeeze.dim, _aten.squeeze.dims, _aten.t.default, _aten.transpose.int, _aten.permute.default),
        *(_aten.alias.default, _aten.detach.default),
    )
)
_answers: dict[tuple[Any, ...], Answer] = {}  # of this process; a fork begins with those of the one that it comes from


class RepeatingMode(FakeTensorMode):
    """For traces: tensors without symbolic shapes."""

    computed = 0  # operators of this process that no cache had

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> RepeatingMode:
        """A model that copies its layers copies their tensors, not the mode: two modes cannot be mixed."""
        return self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled, so torch need not see to it that these calls are not."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operator's result, as FakeTensorMode has it."""
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].device
        kwargs = kwargs or {}
        key = self._key(func, args, kwargs)
        answer = _answers.get(key) if key else None
        if answer:
            return answer.made(self, args)
        before = _counts()
        out = super().__torch_dispatch__(func, types, args, kwargs)
        computed, hits, kept = (now - then for now, then in zip(_counts(), before, strict=True))
        if key and (computed == kept if computed else hits == 1):  # torch keeps all that it computed, or had it
            answer = _answer(func, args, out)
            if answer:
                _answers[key] = answer
        return out

    def _dispatch_impl(self, *arguments: Any) -> Any:
        RepeatingMode.computed += 1
        return super()._dispatch_impl(*arguments)

    def _key(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
        """Everything that decides the result; nothing if torch would not keep it."""
        key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        placed = func.is_view and func not in _MOVING
        if not self._add(key, _without_place(func, args), placed):
            return None
        if kwargs:
            key += kwargs
            if not self._add(key, kwargs.values(), placed):
                return None
        return tuple(key)

    def _add(self, key: list[Any], arguments: Iterable[Any], placed: bool) -> bool:
        for argument in arguments:
            kind = type(argument)
            if kind is FakeTensor:
                if (
                    argument.constant is not None
                    or argument.fake_mode is not self
                    or argument.layout is not torch.strided
                ):
                    return False
                key += (argument.dtype, argument.shape, argument.stride())
                if placed:
                    key += (argument.storage_offset(), argument.untyped_storage().nbytes())
                key += (argument.device, argument.requires_grad, argument.is_conj(), argument.is_neg())
            elif kind in VALUES:
                key += (kind, argument)  # 1, 1.0 and True are equal
            elif kind is list or kind is tuple:
                key += (kind, len(argument))
                if not self._add(key, argument, placed):
                    return False
            else:
                return False
        return True


def _counts() -> tuple[int, int, int]:
    """Operators that were computed, those that torch's cache had, and those that it keeps; without counters it is slow.

    An operator may be made of others, which are computed and kept like any.
    """
    return RepeatingMode.computed, getattr(FakeTensorMode, "cache_hits", 0), getattr(FakeTensorMode, "cache_misses", 0)


def _without_place(func: Any, args: Any) -> Any:
    """The arguments of an operator on a part of a tensor without where the part begins; all arguments of others."""
    if func in _INDEXED and len(args) == _INDEXED[func] + 1 and _is_part(args):
        return args[:-1]
    if func is _aten.slice.Tensor and len(args) == len(("whole", "dim", "start", "end")) and _is_part(args[:3]):
        whole, dim, start, end = args
        if type(end) is int and 0 <= start < end <= whole.shape[dim]:
            return whole, dim, "part", end - start
    return args


def _is_part(args: Any) -> bool:
    """Whether the last of an operator's arguments is the number of a part that there is, along the one before."""
    whole, dim, index = args[-3:]
    shape = whole.shape if isinstance(whole, torch.Tensor) else whole
    if type(dim) is not int or type(index) is not int or not -len(shape) <= dim < len(shape):
        return False
    return type(shape[dim]) is int and -shape[dim] <= index < shape[dim]


def _answer(func: Any, args: Any, out: Any) -> Answer | None:
    """How to make such a result again."""
    if type(out) is tuple or type(out) is list:
        parts = tuple(part for one in out if (part := _answer(func, args, one)))
        return Several(type(out), parts) if len(parts) == len(out) else None
    if not isinstance(out, torch.Tensor):
        return Plain(out) if type(out) in VALUES else None
    for number, arg in enumerate(args):
        if arg is out:
            return Argument(number)
    if out.is_conj() or out.is_neg():
        return None
    viewed = next(number for number, arg in enumerate(args) if isinstance(arg, torch.Tensor)) if func.is_view else None
    return Made(
        shape=tuple(out.shape),
        stride=out.stride(),
        dtype=out.dtype,
        device=out.device,
        requires_grad=out.requires_grad,
        state={name: value for name, value in vars(out).items() if name != "fake_mode"},
        viewed=viewed,
        later=out.storage_offset() - args[viewed].storage_offset() if viewed is not None else 0,
        is_part=func.is_view and _without_place(func, args) is not args,
    )


def known() -> int:
    """How many answers this process has."""
    return len(_answers)


def learned(since: int) -> bytes:
    """The answers that this process has found after so many, for another one with the same libraries.

    Another process may lack operators of libraries, so only torch's own are among them.
    """
    found = itertools.islice(_answers.items(), since, None)
    return encoded({key: answer for key, answer in found if key[0].namespace == "aten"})


def know(told: bytes) -> None:
    """Take what another process has learned."""
    for key, answer in decoded(told).items():
        _answers.setdefault(key, answer)
