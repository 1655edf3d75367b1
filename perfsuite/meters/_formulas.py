"""The FLOPs of operators that torch's counter does not know. A formula gets shapes, as those of torch do.

An expert's matrices are multiplied by the rows that its tokens have, so a grouped product is as many FLOPs as the
products of all groups: 2 · rows · inner · columns. Rows beyond the last group, which a kernel skips, count too.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

Shape = Sequence[int]
Formula = Callable[..., int]


def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Fused attention's forward on a CPU: the same two products as on a GPU."""
    from torch.utils.flop_counter import sdpa_flop_count

    return int(sdpa_flop_count(query, key, value))


def attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Fused attention's backward: five products, of which one is computed again."""
    from torch.utils.flop_counter import sdpa_backward_flop_count

    return int(sdpa_backward_flop_count(gradient, query, key, value))


def grouped(left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """One product of a group for each: [rows, inner] x [groups, inner, columns] in forward, [inner, rows] x [rows,
    columns] for the gradient of the weights, or either side whole for each group. Rows are shared by the groups.
    """
    groups = left[0] if len(left) == len(right) == 3 else 1
    return 2 * groups * math.prod(left[-2:]) * right[-1]


def grouped_backward(inputs: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """Both gradients of transformers' own grouped product."""
    return 2 * grouped(inputs, weight)


def product(_: Shape, left: Shape, right: Shape, *__: Any, **___: Any) -> int:
    """What is added in place: [rows, inner] x [inner, columns], of each matrix of a batch."""
    return 2 * math.prod(left) * right[-1]


def dot(one: Shape, *_: Any, **__: Any) -> int:
    """A product and a sum of each element."""
    return 2 * math.prod(one)


def linear_cross_entropy(hidden: Shape, weight: Shape, *rest: Any, **_: Any) -> int:
    """The logits of all chunks and, as the last arguments say, the gradients of hidden states and weight with them."""
    of_hidden, of_weight, _ = rest[-3:]
    return 2 * math.prod(hidden) * weight[0] * (1 + int(of_hidden) + int(of_weight))


def linear_cross_entropy_of_each(hidden: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """The logits alone. Backward calls operators that are counted by themselves."""
    return 2 * math.prod(hidden) * weight[0]


def formulas() -> dict[Any, Formula]:
    """Those of the operators that this process has: a library registers its own when it is imported."""
    import torch

    known: dict[str, Formula] = {
        "aten::_scaled_dot_product_flash_attention_for_cpu": attention,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
        "aten::addmm_": product,
        "aten::_sparse_addmm": product,
        "aten::dot": dot,
        "aten::baddbmm_": product,
        "aten::_grouped_mm": grouped,
        "aten::_scaled_grouped_mm": grouped,
        "transformers::grouped_mm_fallback": grouped,
        "transformers::grouped_mm_fallback_backward": grouped_backward,
        "torch_nn::_linear_cross_entropy_batch_chunked": linear_cross_entropy,
        "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": linear_cross_entropy_of_each,
    }
    found = {}
    for name, formula in known.items():
        namespace, _, operator = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operator, None)
        if packet is not None:
            found[packet] = formula
    return found
