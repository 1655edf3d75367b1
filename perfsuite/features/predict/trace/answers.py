"""What an operator has answered, as data: how to make such a result again, in this process or in another one."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import io
import pickle
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

OPERATOR = type(torch.ops.aten.add.Tensor)


@dataclasses.dataclass(frozen=True)
class Plain:
    """An answer that is no tensor."""

    value: Any

    def made(self, mode: FakeTensorMode, args: Any) -> Any:
        """The answer to an operator with these positional arguments."""
        return self.value


@dataclasses.dataclass(frozen=True)
class Argument:
    """An answer that is one of the arguments, as of an operator in place."""

    number: int

    def made(self, mode: FakeTensorMode, args: Any) -> Any:
        """The answer to an operator with these positional arguments."""
        return args[self.number]


@dataclasses.dataclass(frozen=True)
class Several:
    """Answers in a tuple or a list, which is the ``kind``."""

    kind: type
    parts: tuple[Answer, ...]

    def made(self, mode: FakeTensorMode, args: Any) -> Any:
        """The answer to an operator with these positional arguments."""
        return self.kind(part.made(mode, args) for part in self.parts)


@dataclasses.dataclass(frozen=True)
class Made:
    """An answer that is a new tensor. If it is a view of the argument ``viewed``, it begins ``later`` in the storage;
    one part of it begins where the arguments say.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    state: dict[str, Any]
    viewed: int | None = None
    later: int = 0
    is_part: bool = False

    def made(self, mode: FakeTensorMode, args: Any) -> FakeTensor:
        """What FakeTensor's constructor makes, without its checks."""
        inner = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
        if self.viewed is not None:
            inner.set_(args[self.viewed].untyped_storage(), self._begin(args), self.shape, self.stride)
        made = torch.Tensor._make_subclass(
            FakeTensor, inner, self.requires_grad, dispatch_device=True, device_for_backend_keys=self.device
        )
        vars(made).update(self.state, fake_mode=mode)
        return made

    def _begin(self, args: Any) -> int:
        if self.is_part:
            whole, dim, index = args[:3]
            return int(whole.storage_offset() + index % whole.shape[dim] * whole.stride(dim))
        return int(args[self.viewed].storage_offset() + self.later)


Answer = Plain | Argument | Several | Made


def encoded(answers: dict[tuple[Any, ...], Answer]) -> bytes:
    """Answers by what decides them: an operator first, which is written by its name."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written)
    pickler.dispatch_table = copyreg.dispatch_table | {OPERATOR: lambda one: (_named, (str(one),))}
    pickler.dump(answers)
    return written.getvalue()


def decoded(written: bytes) -> dict[tuple[Any, ...], Answer]:
    """The answers of ``encoded``."""
    answers: dict[tuple[Any, ...], Answer] = pickle.loads(written)
    return answers


def _named(name: str) -> Any:
    """The operator of that name, as ``aten.add.Tensor``."""
    return functools.reduce(getattr, name.split("."), torch.ops)
