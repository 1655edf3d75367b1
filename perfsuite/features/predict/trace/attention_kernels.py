"""Attention: which kernel torch would select on a device, and what the kernel keeps.

torch selects in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, the first of these that is possible:
    cudnn       half precision, no dropout, no mask with a gradient, on Hopper and the B200's generation
    flash       half precision, no mask, Ampere and newer, a head of at most 256
    efficient   no grouped queries, with or without a mask; no bf16 before Ampere
    math        everything: the scores of all pairs of tokens are kept, in fp32 even of half precision

cuDNN's comes first if cuDNN is newer than 9.15 (check_prefer_cudnn_attention), which is so in the wheels of 2.11 and
later. It keeps an fp32 number per query and two integers. Its workspace is its own secret, and not modelled.
"""

import contextlib
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HALF = (torch.float16, torch.bfloat16)
LARGEST_FLASH_HEAD = 256  # cuDNN's, too
CUDNN_GENERATIONS = (9.0, 10.0)  # compute capabilities
FLASH_MULTIPLE = 8  # flash pads a head to a multiple of it
STAGED_HEAD = 128  # beyond it the efficient kernel does not keep a head's sums in registers
VOLTA = 7.0
MASK_MULTIPLE = {2: 8, 4: 4}  # elements by element size: the efficient kernel needs rows aligned to 16 bytes


def scores_take_the_mask(recorder: Any) -> AbstractContextManager[Any]:
    """Attention that is not fused adds the mask to the scores in place, but not for subclasses of torch.Tensor
    (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).
    """
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(*arguments: Any, **options: Any) -> Any:
        before, recorder.in_attention = recorder.in_attention, True
        try:
            return plain(*arguments, **options)
        finally:
            recorder.in_attention = before

    return mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attention)


def add_mask(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Their sum, in the scores' memory."""
    total: torch.Tensor = torch.ops.aten.alias.default(scores.add_(mask))
    return total


def fits_flash(query: torch.Tensor, mask: Any, newest: bool) -> bool:
    """Whether torch would select its flash kernel; ``newest``: the device is of the Ampere generation or newer."""
    return newest and mask is None and query.dtype in HALF and query.shape[-1] <= LARGEST_FLASH_HEAD


def fits_cudnn(query: torch.Tensor, mask: Any, dropout_p: float, capability: float | None) -> bool:
    """Whether torch would select cuDNN's attention (can_use_cudnn_attention)."""
    if capability not in CUDNN_GENERATIONS or query.dtype not in HALF or (mask is not None and mask.requires_grad):
        return False
    return dropout_p == 0 and query.shape[-1] % FLASH_MULTIPLE == 0 and query.shape[-1] <= LARGEST_FLASH_HEAD


def fits_efficient(query: torch.Tensor, grouped: bool, newest: bool) -> bool:
    """Whether torch would select its efficient kernel (can_use_mem_efficient_attention), if flash does not fit."""
    return not grouped and (newest or query.dtype != torch.bfloat16)


@contextlib.contextmanager
def _dropout_of_bits() -> Iterator[None]:
    """The math kernel's own dropout, which C++ calls and predict/trace/cuda.py cannot patch, with CUDA's bool mask."""

    def dropout(input: Any, p: float, train: bool) -> Any:
        return torch.native_dropout(input, p, train)[0]

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("dropout", dropout, "AutogradCPU")
        yield


def cuda_kernels(recorder: Any, newest: bool, capability: float | None) -> AbstractContextManager[Any]:
    """``scaled_dot_product_attention`` as torch computes it on CUDA."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (one.to(dtype) for one in (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(dtype)
        if fits_cudnn(query, attn_mask, dropout_p, capability):
            keeps = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
            mask = _bias(query, key, attn_mask)
            return torch.ops.aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, keeps, dropout_p, is_causal, scale=scale
            )[0]
        if fits_flash(query, attn_mask, newest):
            head = query.shape[-1]
            apart = head % FLASH_MULTIPLE > 0
            scale = head**-0.5 if apart and scale is None else scale
            padded = [_padded(one) for one in (query, key, value)]
            out = torch.ops.aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, scale=scale)[0]
            return out[..., :head] if apart else out
        if fits_efficient(query, enable_gqa, newest):
            mask = _bias(query, key, attn_mask)
            keeps = torch.is_grad_enabled() and any(
                one is not None and one.requires_grad for one in (query, key, value, mask)
            )
            return torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, keeps, dropout_p, is_causal, scale=scale
            )[0]
        with torch.autocast("cpu", enabled=False), sdpa_kernel(SDPBackend.MATH), _dropout_of_bits():
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    recorder.rules[torch.ops.aten._scaled_dot_product_efficient_attention.default] = efficient_forward
    if capability is not None:
        rule = functools.partial(efficient_backward, capability)
        recorder.rules[torch.ops.aten._scaled_dot_product_efficient_attention_backward.default] = rule
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
    recorder.rules[backward] = flash_backward
    return mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attention)


def _padded(heads: Any) -> Any:
    """Heads as wide as the flash kernel needs them."""
    lacking = -heads.shape[-1] % FLASH_MULTIPLE
    return torch.nn.functional.pad(heads, (0, lacking)) if lacking else heads


def _bias(query: Any, key: Any, mask: Any) -> Any:
    """A mask in the form that the efficient kernel needs: added to the scores, expanded, with aligned rows."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype), torch.full((), float("-inf"), dtype=query.dtype))
    multiple = MASK_MULTIPLE[query.element_size()]
    length = mask.shape[-1]
    if length % multiple and length > 1:
        mask = torch.nn.functional.pad(mask, (0, -length % multiple))[..., :length]
    return mask.expand(*query.shape[:-1], key.shape[-2])


def efficient_forward(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The efficient kernel keeps the seed and the offset of its dropout on the host, except in a graph. It sums large
    heads in half precision in fp32 (transformers/cuda/attention.cu, _efficient_attention_forward).
    """
    out, *kept, seed, offset = func(*args, **kwargs)
    for one in (out, *kept):
        recorder.note(one, str(func))
    if out.dtype in HALF and out.shape[-1] > STAGED_HEAD:
        recorder.scratch(4 * out.numel(), str(func))
    return (out, *kept, torch.empty_like(seed, device="cpu"), torch.empty_like(offset, device="cpu"))


def efficient_backward(capability: float, recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The efficient kernel's backward has a number per query, and a workspace in which its blocks sum in fp32
    (transformers/cuda/attention_backward.cu).
    """
    out = func(*args, **kwargs)
    gradient, query, key, value = args[:4]
    dropout_p = args[9]
    for one in out:
        if one is not None:
            recorder.note(one, str(func))
    numbers = 4 * query[..., 0].numel()
    half = query.dtype in HALF
    if not half or (capability == VOLTA and query.shape[-1] > STAGED_HEAD):  # the numbers are of other kernels
        summed = [recorder.hold(query, 4 * gradient.numel(), str(func)) for _ in range(3 if half else 1)]
        kept = recorder.hold(query, numbers, str(func))
        recorder.scratch(numbers if query.shape[1] > 1 else 0, str(func))  # into the layout of the kernel
        del summed
    else:
        kept = recorder.hold(query, numbers, str(func))
    recorder.scratch(workspace(query, key, value, dropout_p, capability), str(func))
    del kept
    return out


def workspace(query: Any, key: Any, value: Any, dropout_p: float, capability: float) -> int:
    """Bytes in which the efficient kernel's backward sums, by shapes [batch, heads, tokens, head]
    (mem_eff_attention/kernel_backward.h, Params::workspace_size).

    The blocks of the first kernel that a device can hold (kernels/cutlassB.h) were read on emulated GPUs.
    """
    batch, heads, length, head = map(int, query.shape)
    half = query.dtype in HALF
    little = capability < 8 or capability in (8.6, 8.9) or capability >= 12  # less than 160 KiB of shared memory
    rows, columns, staged = 64, 64, False  # ``staged``: the gradients of keys and values are summed there, too
    if head > STAGED_HEAD and half:
        rows, staged = 128, True
    elif head > 64 and not half:
        rows = 64 if little else 128
    elif head > 64:
        narrow = capability in (8.6, 8.9) and head <= 96 and not dropout_p
        rows, columns = (128, 64) if capability < 8 or narrow else (64, 64) if little else (128, 128)
        staged = rows == 64
    sums = -(-length // rows) * -(-head // columns) * (4 * rows * columns + 16)
    if staged:
        keys = -(-int(key.shape[-2]) // 64)
        splits = 1 if batch * heads >= 256 and keys <= 2 else max(1, min(keys, 200 // (batch * heads)))
        wide = -(-head // rows) * rows + -(-int(value.shape[-1]) // rows) * rows
        sums += 4 * splits * 64 * wide
    return batch * heads * sums


def flash_backward(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Flash attention sums the gradient of the queries in fp32, padded to blocks, in addition to a number per query
    (csrc/flash_attn/flash_api.cpp, mha_bwd); with grouped queries, keys and values are expanded first.
    """
    out = func(*args, **kwargs)
    query, key = args[1], args[2]
    batch, heads, length, head = query.shape
    rounded, wide = -(-length // 128) * 128, -(-head // (32 if head <= 128 else 64)) * (32 if head <= 128 else 64)
    expanded = 2 * batch * key.shape[2] * heads * head * query.element_size() if key.shape[1] != heads else 0
    for one in out:
        recorder.note(one, str(func))
    recorder.scratch(4 * batch * rounded * heads * (wide + 1) + expanded, str(func))
    return out
