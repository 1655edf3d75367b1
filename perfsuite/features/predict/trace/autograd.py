"""Where autograd treats fake tensors, or tensors under a dispatch mode, differently from real ones."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor

from perfsuite.features.predict.trace import attention_kernels as attention
from perfsuite.features.predict.trace.recorder import node_name

HANDS = 4  # references to a tensor between autograd's buffer and a dispatch mode, if there are no others


def add(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A gradient that comes from several nodes is summed in the first one's memory.

    torch/csrc/autograd/input_buffer.cpp does so for a dense tensor without other references, but not under a dispatch
    mode: there it adds out of place. It adds a node's result to the buffer of an earlier node.
    """
    total, more = args[0], args[1]
    if recorder.in_attention and total.dim() == 4:
        return attention.add_mask(total, more)
    if not node_name() or torch.is_grad_enabled() or not isinstance(more, torch.Tensor) or total.dtype != more.dtype:
        return func(*args, **kwargs)
    earlier = recorder.maker(total) not in ("", node_name())
    return total.add_(more) if earlier and alone(total) else func(*args, **kwargs)


def alone(tensor: torch.Tensor) -> bool:
    """Whether only autograd's buffer refers to the tensor and its storage."""
    storage = tensor.untyped_storage()
    return (
        storage.nbytes() == tensor.numel() * tensor.element_size()
        and tensor._use_count() <= HANDS  # type: ignore[attr-defined]
        and torch._C._storage_Use_Count(storage._cdata) <= 2  # the tensor and our own object
    )


def modules_keep_parameters(recorder: Any) -> AbstractContextManager[Any]:
    """``module.to()`` and similar functions set a parameter's data. torch would swap fake parameters instead, which
    fails if they have other references (torch/nn/modules/module.py).
    """

    def apply(module: torch.nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> torch.nn.Module:
        for child in module.children() if recurse else ():
            child._apply(fn)
        with torch.no_grad():
            for parameter in module._parameters.values():
                if parameter is not None:
                    parameter.data = fn(parameter.data)
                    if parameter.grad is not None:
                        parameter.grad.data = fn(parameter.grad.data)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = fn(buffer)
        return module

    return mock.patch.object(torch.nn.Module, "_apply", apply)


@contextlib.contextmanager
def many_tensors_at_once(recorder: Any) -> Iterator[None]:
    """Operators on a list of tensors, such as the norm of all gradients, are called only for known types."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    with contextlib.ExitStack() as stack:
        for module in (optimizer, _foreach_utils):
            kinds = [*module._foreach_supported_types, FakeTensor]
            stack.enter_context(mock.patch.object(module, "_foreach_supported_types", kinds))
        yield


def random_states_count(recorder: Any) -> AbstractContextManager[Any]:
    """Checkpointing keeps the state of the generator, a tensor that torch makes without the dispatcher."""
    get_rng_state = torch.get_rng_state

    def counted() -> torch.Tensor:
        state = get_rng_state()
        recorder.note(state, "torch.get_rng_state")
        return state

    return mock.patch.object(torch, "get_rng_state", counted)


def storages_resize(recorder: Any) -> AbstractContextManager[Any]:
    """FSDP frees a parameter by resizing its storage to zero, which calls no operator."""
    resize = torch.UntypedStorage.resize_

    def counted(storage: Any, size: int) -> Any:
        result = resize(storage, size)
        recorder.resize(storage)
        return result

    return mock.patch.object(torch.UntypedStorage, "resize_", counted)
