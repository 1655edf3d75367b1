"""bitsandbytes on fake tensors: a matrix in few bits is a table of sizes, and kernels of CUDA have their buffers.

Its classes of parameters are made of a real tensor's storage, so a fake one takes their place, with the same fields.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import torch

PAGED = 100_000  # elements of the smallest state that bitsandbytes pages (bitsandbytes/optim/optimizer.py)


def _parameter(data: torch.Tensor, **fields: Any) -> torch.Tensor:
    made = torch.nn.Parameter(data, requires_grad=False)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _four_bits(
    cls: type,
    data: torch.Tensor,
    requires_grad: bool = False,
    quant_state: Any = None,
    bnb_quantized: bool = False,
    module: Any = None,
    **options: Any,
) -> torch.Tensor:
    """Params4bit.__new__, which also quantizes: a real one does that when it gets to the device."""
    from bitsandbytes.functional import quantize_4bit

    if not bnb_quantized and data.device.type != "meta":
        data, quant_state = quantize_4bit(data.contiguous(), **options)
        bnb_quantized = True
    if module is not None and quant_state is not None:
        module.quant_state = quant_state
    return _parameter(data, quant_state=quant_state, module=module, bnb_quantized=bnb_quantized, **options)


def _eight_bits(
    cls: type,
    data: torch.Tensor,
    requires_grad: bool = True,
    has_fp16_weights: bool = False,
    CB: Any = None,  # noqa: N803  as bitsandbytes names them
    SCB: Any = None,  # noqa: N803
    **_: Any,
) -> torch.Tensor:
    """Int8Params.__new__, which also quantizes."""
    from bitsandbytes.functional import int8_vectorwise_quant

    fields = {"CB": CB, "SCB": SCB, "has_fp16_weights": has_fp16_weights}
    if not has_fp16_weights and CB is None and data.device.type != "meta":
        data, scales, _none = int8_vectorwise_quant(data.to(torch.float16))
        fields |= {"CB": data, "SCB": scales}
    return _parameter(data, **fields)


def matrices_are_sizes(recorder: Any) -> AbstractContextManager[Any]:
    """Parameters in four and in eight bits. Products of the latter are those of CUDA: a CPU's make matrices whole."""
    from bitsandbytes import nn
    from bitsandbytes.autograd import _functions

    stack = ExitStack()
    stack.enter_context(mock.patch.object(nn.Params4bit, "__new__", _four_bits))
    stack.enter_context(mock.patch.object(nn.Int8Params, "__new__", _eight_bits))
    stack.enter_context(mock.patch.object(_functions, "MatMul8bitFp", _functions.MatMul8bitLt))
    return stack


def products_have_buffers(recorder: Any) -> None:
    """The products of CUDA (bitsandbytes/backends/cuda/ops.py) as the operators that they consist of.

    A matrix in four bits is made whole for each product of more than a few hundred rows. One in eight bits is
    multiplied as integers of 4 bytes; the columns of inputs that are outliers, of which there are few, are left out.
    """
    from bitsandbytes.backends.default import ops

    operators = torch.ops.bitsandbytes

    def body(function: Callable[..., Any]) -> Callable[..., Any]:
        def rule(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
            with recorder:
                return function(*args, **kwargs)

        return rule

    def dequantized(rows: Any, row_stats: Any, col_stats: Any, dtype: Any = None, bias: Any = None) -> Any:
        out = torch.empty_like(rows, dtype=torch.float16)
        return out.to(dtype or torch.float16)

    def scaled(*operands: Any, bias: Any = None, dtype: Any = None) -> Any:
        a, b, row_stats, col_stats, *rest = operands
        bias, dtype = rest[0] if rest else bias, rest[1] if len(rest) > 1 else dtype
        return operators.int8_mm_dequant.default(
            operators.int8_linear_matmul.default(a, b), row_stats, col_stats, dtype=dtype, bias=bias
        )

    def mixed(a: Any, *operands: Any) -> Any:
        ca, cb, sca, scb, _, bias = (*operands, None, None)[:6]
        return scaled(ca, cb, sca, scb, bias=bias, dtype=a.dtype), a.new_empty(0)

    def quantized(a: Any, threshold: float = 0.0) -> Any:
        rows, stats, _ = operators.int8_vectorwise_quant.default(a, 0.0)
        outliers = None if not threshold else (a.abs() >= threshold).new_empty(0, dtype=torch.int64)
        return rows, stats, outliers

    recorder.rules |= {
        operators.gemm_4bit.default: body(ops._gemm_4bit_default_impl),
        operators.int8_mm_dequant.default: body(dequantized),
        operators.int8_scaled_mm.default: body(scaled),
        operators.int8_mixed_scaled_mm.default: body(mixed),
        operators.int8_vectorwise_quant.default: lambda recorder, func, args, kwargs: (
            body(quantized)(recorder, func, args, kwargs) if args[1:] and args[1] else func(*args, **kwargs)
        ),
    }


def pages_are_on_the_host(recorder: Any) -> AbstractContextManager[Any]:
    """State in CUDA's unified memory is not the allocator's: it is on the host as soon as the device lacks room."""
    from bitsandbytes import functional
    from bitsandbytes.optim import optimizer

    def buffer(self: Any, parameter: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        paged = self.is_paged and parameter.numel() >= PAGED
        made: Any = torch.zeros_like(parameter, dtype=dtype, device="cpu" if paged else parameter.device)
        made.is_paged = paged
        return made  # type: ignore[no-any-return]

    stack = ExitStack()
    stack.enter_context(mock.patch.object(optimizer.Optimizer8bit, "get_state_buffer", buffer))
    stack.enter_context(mock.patch.object(functional, "prefetch_tensor", lambda *_, **__: None))
    return stack


PATCHES = (matrices_are_sizes, products_have_buffers, pages_are_on_the_host)
