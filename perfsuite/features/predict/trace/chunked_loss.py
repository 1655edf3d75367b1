"""torch's linear_cross_entropy in chunks: an operator in Python, whose fake has its results and none of its buffers."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch


def runs_its_body(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What the operator calls is recorded."""
    from torch.nn.modules import linear_cross_entropy

    operator: Any = getattr(linear_cross_entropy, func.overloadpacket.__name__)
    with recorder:
        return operator._init_fn(*args, **kwargs)


def chunks_have_buffers(recorder: Any) -> None:
    """This process may not have the two operators: a release lacks them, or nobody uses them."""
    try:
        from torch.nn.modules import linear_cross_entropy  # noqa: F401
    except ImportError:
        return
    operators = torch.ops.torch_nn
    recorder.rules[operators._linear_cross_entropy_batch_chunked.default] = runs_its_body
    recorder.rules[operators._linear_cross_entropy_batch_chunked_no_reduction.default] = runs_its_body


class _NameOfCuda(str):
    """A device that is made where the trace computes, and of the type "cuda"."""

    __slots__ = ()
    type = "cuda"


class _OnCuda:
    """A tensor whose device says that it is of CUDA. The operator looks there for how it casts."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.device = _NameOfCuda(tensor.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def chunks_are_of_cuda(recorder: Any) -> AbstractContextManager[Any]:
    """There the operator has cuBLAS widen half precision, where a CPU casts before each product, and cuts its chunks
    otherwise.
    """
    try:
        from torch.nn.modules import linear_cross_entropy, linear_cross_entropy_options
    except ImportError:
        return contextlib.nullcontext()
    context = linear_cross_entropy._ChunkContext
    build, multiply = context.build, context.mm

    def of_cuda(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return build(_OnCuda(tensor), *arguments, **options)  # type: ignore[arg-type]

    def mm(self: Any, one: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor) -> None:
        if one.dtype == out.dtype:
            multiply(self, one, other, out=out)  # else cuBLAS writes what it widens into ``out``

    defaults = linear_cross_entropy_options._AUTO_DEFAULTS
    there = {("cpu", dtype): chosen for (device, dtype), chosen in defaults.items() if device == "cuda"}
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.multiple(context, build=of_cuda, mm=mm))
    stack.enter_context(mock.patch.dict(defaults, there))
    return stack
