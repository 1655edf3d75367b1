"""Memory that a CPU's kernels allocate and free while they run. A fake kernel allocates none."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from perfsuite.rank.grouped import grouped_output
from perfsuite.rank.memory.cpu_allocator import CpuAllocator

MATMULS = (
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
)
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class ScratchLayout:
    """Of a tensor whose numbers do not matter."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def matmuls_repack(recorder: Any) -> None:
    """oneDNN copies blocks of its operands in half precision."""
    recorder.rules |= dict.fromkeys(MATMULS, _as_the_kernel_needs())


def float8_converts(recorder: Any) -> None:
    """A CPU that cannot multiply float8 multiplies copies in fp32 (aten/src/ATen/native/Blas.cpp)."""
    recorder.rules[torch.ops.aten._scaled_mm.default] = _as_the_kernel_needs()


def _as_the_kernel_needs() -> Callable[..., Any]:
    """A rule for products in half precision. The number of bytes depends on shapes, layouts and the CPU's instructions,
    so the kernel itself is used: each different product runs once, on arbitrary numbers.
    """
    allocator = CpuAllocator()

    @functools.cache
    def needed(func: Any, given: tuple[Any, ...]) -> int:
        with unset_fake_temporarily():
            args, kwargs = tree_map(_made, given)
            allocator.reset_peak()
            before = allocator.peak_bytes
            out = func(*args, **dict(kwargs))
            return allocator.peak_bytes - before - int(out.untyped_storage().nbytes())

    def rule(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        if out.dtype in HALF and out.numel():
            recorder.note(out, str(func))
            recorder.scratch(needed(func, tree_map(_layout, (args, tuple(kwargs.items())))), str(func))
        return out

    return rule


def _layout(value: Any) -> Any:
    """What decides about a kernel's memory, of a tensor; any other value decides itself."""
    return ScratchLayout(tuple(value.shape), value.stride(), value.dtype) if isinstance(value, torch.Tensor) else value


def _made(value: Any) -> Any:
    return (
        torch.empty_strided(value.shape, value.stride, dtype=value.dtype) if isinstance(value, ScratchLayout) else value
    )


def promoted(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """An elementwise kernel first converts operands that do not have the common dtype
    (aten/src/ATen/TensorIterator.cpp); CUDA's kernels convert while they read.
    """
    if torch.Tag.pointwise not in func.tags or func in _CONVERT:
        return
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point]
    common = max((tensor.dtype for tensor in tensors if tensor.dim()), key=lambda dtype: dtype.itemsize, default=None)
    if common is None:
        return
    converted = sum(tensor.numel() for tensor in tensors if tensor.dtype != common)
    if isinstance(out, torch.Tensor) and out.dtype != common and any(out is tensor for tensor in tensors):
        converted += out.numel()  # what is written in place, too
    recorder.scratch(converted * common.itemsize, str(func))


_CONVERT = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


def elementwise_kernels_convert(recorder: Any) -> None:
    """Apply ``promoted`` to every operator."""
    recorder.watchers.append(promoted)


def layer_norms_sum(recorder: Any) -> None:
    """The backward of a layer norm sums the gradients of weight and bias in a buffer, one row of fp32 of each per
    thread, and a rank has one (aten/src/ATen/native/cpu/layer_norm_kernel.cpp).
    """

    def rule(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        for one in out:
            if one is not None:
                recorder.note(one, str(func))
        if out[1] is not None:
            recorder.scratch(2 * out[1].numel() * torch.float32.itemsize, str(func))
        return out

    recorder.rules[torch.ops.aten.native_layer_norm_backward.default] = rule


def safe_softmax(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Attention that is not fused looks for rows that are completely masked, also on CUDA
    (aten/src/ATen/native/transformers/attention.cpp).
    """
    out = func(*args, **kwargs)
    recorder.note(out, str(func))
    recorder.scratch(out.numel() + out.numel() // out.shape[-1] + out.element_size(), str(func))
    return out


def grouped(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The experts' products, whose rule for fake tensors takes bf16 alone."""
    return grouped_output(*args, **kwargs)
