"""A grouped matrix product on fake tensors: torch's own rule for them takes bf16 alone, but its kernels take any."""

import math
from typing import Any

ALIGNED = 16  # bytes: a row of the output begins at a multiple of them


def grouped_output(left: Any, right: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """An empty output of aten::_grouped_mm, in the layout of its kernels (ATen/native/GroupedMMUtils.h). Either side is
    a matrix, of which each group has a stretch that ends at its ``offs``, or a matrix for each group.
    """
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == 2 and right.dim() == 2:
        size = [offs.shape[0], rows, columns]
    elif left.dim() == 3 and right.dim() == 3:
        size = [left.shape[0], rows, columns]
    else:
        size = [rows, columns]
    dtype = out_dtype or left.dtype
    step = ALIGNED // dtype.itemsize
    row = math.ceil(columns / step) * step
    return left.new_empty_strided(size, [rows * row, row, 1][-len(size) :], dtype=dtype)
