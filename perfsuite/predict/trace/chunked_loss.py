"""torch's linear_cross_entropy in chunks: an operator in Python, whose fake has its results and none of its buffers."""

from typing import Any

import torch


def runs_its_body(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What the operator calls is recorded."""
    from torch.nn.modules import linear_cross_entropy

    operator: Any = getattr(linear_cross_entropy, func.overloadpacket.__name__)
    with recorder:
        return operator._init_fn(*args, **kwargs)


def chunks_have_buffers(recorder: Any) -> None:
    """Apply the rule to both operators, which this process may not have: a release lacks them, or nobody uses them."""
    try:
        from torch.nn.modules import linear_cross_entropy  # noqa: F401
    except ImportError:
        return
    operators = torch.ops.torch_nn
    recorder.rules[operators._linear_cross_entropy_batch_chunked.default] = runs_its_body
    recorder.rules[operators._linear_cross_entropy_batch_chunked_no_reduction.default] = runs_its_body
