"""Fake tensors are on a CPU; this makes it act like CUDA wherever the two differ in what they keep.

Fake CUDA tensors would not need it, but torch 2.13 fails in their backward without a GPU.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from perfsuite.features.predict.trace_records import CACHE

# aten/src/ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE: operators that autocast computes in
# fp32 on CUDA. On a CPU it leaves their dtype unchanged.
FP32 = (
    "exp", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "rsqrt", "tan", "sinh", "cosh", "acos", "asin",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "rms_norm",
    "group_norm", "nll_loss", "nll_loss_nd", "smooth_l1_loss", "huber_loss", "mse_loss",
    "binary_cross_entropy_with_logits", "kl_div", "l1_loss", "logsumexp", "dist", "cdist", "norm.Scalar",
)  # fmt: skip
BLOCK = 1024  # threads of the largest block
CUB = 1279  # bytes of the least scratch of a CUB algorithm over some thousand elements
FEW = 3072  # indices that an embedding's backward does not sort
CHUNK = 2**16  # elements of a tensor that one block of a foreach kernel reads
FP32_BY_DTYPE = ("softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "cumsum", "prod", "prod.dim_int")


@contextlib.contextmanager
def autocast_lists(recorder: Any) -> Iterator[None]:
    """CUDA's list of operators that run in fp32 under autocast. Cross entropy is on a CPU's list only: on CUDA, its
    log_softmax is on this one.
    """
    library = torch.library.Library("aten", "IMPL")
    library.impl("cross_entropy_loss", torch.library.fallthrough_kernel, "AutocastCPU")
    for name in FP32:
        library.impl(name, _in_fp32(_overload(name)), "AutocastCPU")
    for name in FP32_BY_DTYPE:
        library.impl(name, _asking_fp32(_overload(name)), "AutocastCPU")
    yield


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _in_fp32(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return op(*(_widen(arg) for arg in args), **{name: _widen(kwarg) for name, kwarg in kwargs.items()})

    return run


def _widen(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.to(torch.float32) if half else value


def _asking_fp32(op: Any) -> Callable[..., Any]:
    positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]

    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(positional, args, strict=False)) | kwargs
        if given.get("dtype") is None and given["self"].dtype in (torch.bfloat16, torch.float16):
            given["dtype"] = torch.float32
        with _without_autocast():
            return op(**given)

    return run


@contextlib.contextmanager
def autocast_is_asked_for_cuda(recorder: Any) -> Iterator[None]:
    """Libraries ask for CUDA's autocast, some by asking for none: torchao's float8 layers, peft's quantized ones."""
    is_enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype

    def own(device: str = "cuda") -> str:
        return "cpu" if device == "cuda" else device

    with (
        mock.patch.object(torch, "is_autocast_enabled", lambda *device: is_enabled(own(*device))),
        mock.patch.object(torch, "get_autocast_dtype", lambda device: dtype_of(own(device))),
        mock.patch.object(torch, "get_autocast_gpu_dtype", lambda: dtype_of("cpu")),
    ):
        yield


@contextlib.contextmanager
def softmax_widens(recorder: Any) -> Iterator[None]:
    """CUDA's softmax reads half precision and writes fp32 in one kernel, and backward the other way round
    (aten/src/ATen/native/SoftMax.cpp). On a CPU a copy in fp32 comes first.
    """
    library = torch.library.Library("aten", "IMPL")
    for name in ("softmax.int", "log_softmax.int"):
        library.impl(name, _softmax(_overload(f"_{name.removesuffix('.int')}")), "AutogradCPU")
    for name in ("_softmax", "_log_softmax"):
        recorder.rules[_overload(name)] = _widening
    for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        recorder.rules[_overload(name)] = _narrowing
    yield


def _softmax(kernel: Any) -> Callable[..., Any]:
    def run(self: Any, dim: int, dtype: Any = None) -> Any:
        widens = dtype == torch.float32 and self.dtype in (torch.bfloat16, torch.float16)
        return kernel(self if widens or dtype is None else self.to(dtype), dim, widens)

    return run


def _widening(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return torch.empty_like(args[0], dtype=torch.float32) if args[2] else func(*args, **kwargs)


def _narrowing(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = torch.empty_like(args[0], dtype=args[3])
    if func is torch.ops.aten._softmax_backward_data.default:  # it multiplies the gradient by the output first
        recorder.note(out, str(func))
        recorder.scratch(args[0].numel() * args[0].element_size(), str(func))
    return out


def dropout_keeps_bits(recorder: Any) -> AbstractContextManager[Any]:
    """CUDA's dropout is one kernel that keeps a mask of bool; a CPU's keeps one of the input's dtype."""

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or p == 0:
            return input
        out = torch.native_dropout(input, p, True)[0]
        return input.copy_(out) if inplace else out

    return mock.patch.object(torch.nn.functional, "dropout", dropout)


def kernels_allocate(recorder: Any) -> None:
    """The order in which CUDA's dropout allocates (aten/src/ATen/native/cuda/Dropout.cu), the partial sums of the norm
    of a list of tensors (ForeachReduceOp.cu), and the sorted indices of an embedding's backward.

    CUDA's layer norm keeps mean and reciprocal deviation in fp32 (layer_norm_kernel.cu); a CPU's keeps them in the
    parameters' dtype.
    """
    recorder.rules |= {
        torch.ops.aten.native_dropout.default: _mask_first,
        torch.ops.aten._foreach_norm.Scalar: _norms_of_chunks,
        torch.ops.aten.embedding_dense_backward.default: _sorted_indices,
        torch.ops.aten.native_layer_norm.default: _layer_norm,
    }


def _mask_first(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = func(*args, **kwargs)
    recorder.note(out[1], str(func))
    return out


def _norms_of_chunks(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    tensors = args[0]
    chunks = max(-(-tensor.numel() // CHUNK) for tensor in tensors)
    size = len(tensors) * chunks * torch.promote_types(tensors[0].dtype, torch.float32).itemsize
    partial = recorder.hold(tensors[0], size, str(func))  # it lives until all results do
    out = func(*args, **kwargs)
    for one in out:
        recorder.note(one, str(func))
    del partial
    return out


def _sorted_indices(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """More than 3,072 indices are sorted, then summed in pieces of ten (aten/src/ATen/native/cuda/Embedding.cu and
    EmbeddingBackwardKernel.cu). CUB's own scratch was read on emulated GPUs; it grows by less than a byte per index.
    """
    gradient, indices, rows, _, by_frequency = args
    count, width = indices.numel(), gradient.shape[-1]
    if count <= FEW and not by_frequency:
        return func(*args, **kwargs)

    def held(elements: int, size: int = indices.element_size()) -> Any:
        return recorder.hold(indices, elements * size, str(func))

    kept, unsorted = [held(count), held(count)], held(count)
    digits = 2 * count * indices.element_size() if rows > 2**8 else 0  # beyond 8 bits it sorts from buffer to buffer
    recorder.scratch(digits + CUB, str(func))
    del unsorted
    out = func(*args, **kwargs)
    recorder.note(out, str(func))
    kept += [held(count), held(1, 8)]
    unique = held(count)
    recorder.scratch(CUB, str(func))
    del unique
    segments = min(count, rows)
    pieces = count // 10 + segments
    kept += [held(segments), held(segments), held(1, 8), held(pieces)]
    widened = torch.promote_types(gradient.dtype, torch.float32)
    if pieces > 4 * max(segments, -(-segments * width // BLOCK)):  # to few rows, pieces are added at once
        kept += [held(pieces)] + ([held(rows * width, widened.itemsize)] if widened != gradient.dtype else [])
    else:
        kept += [held(pieces * width, widened.itemsize)]
    return out


def optimizers_step_at_once(recorder: Any) -> AbstractContextManager[Any]:
    """torch's optimizers step all parameters with one operator on CUDA, and check the device for that."""
    from torch.optim import optimizer

    return mock.patch.object(optimizer, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])


def _layer_norm(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out, *kept = func(*args, **kwargs)
    return (out, *(_widen(one) for one in kept))


def caches_empty(recorder: Any) -> AbstractContextManager[Any]:
    """``torch.cuda.empty_cache`` does nothing without a GPU. On one it gives free segments back, so that later tensors
    are placed in others: DeepSpeed calls it before it flattens the parameters.
    """
    return mock.patch.object(torch.cuda, "empty_cache", lambda: recorder.events.append((CACHE, 0, 0, 0)))


PATCHES = (
    autocast_is_asked_for_cuda,
    autocast_lists,
    caches_empty,
    dropout_keeps_bits,
    kernels_allocate,
    optimizers_step_at_once,
    softmax_widens,
)
