"""torch's linear_cross_entropy in chunks: an operator in Python, whose fake has its results and none of its buffers."""

from typing import Any

import torch

from perfsuite.errors import Unsupported


def runs_its_body(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What the operator calls is recorded."""
    from torch.nn.modules import linear_cross_entropy

    operator: Any = getattr(linear_cross_entropy, func.overloadpacket.__name__)
    with recorder:
        return operator._init_fn(*args, **kwargs)


def of_a_gpu(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The same in fp32. Raises Unsupported below it: there torch casts on a CPU, where a trace computes, and has cuBLAS
    widen on CUDA.
    """
    if args[0].dtype != torch.float32:
        raise Unsupported(
            "chunked_loss below fp32 has other buffers on a GPU than on a CPU, where a trace computes: "
            "perfsuite memory --emulated runs it."
        )
    return runs_its_body(recorder, func, args, kwargs)


def chunks_have_buffers(recorder: Any, rule: Any = runs_its_body) -> None:
    """Of a CPU; of a GPU with the rule ``of_a_gpu``. This process may not have the two operators: a release lacks them,
    or nobody uses them.
    """
    try:
        from torch.nn.modules import linear_cross_entropy  # noqa: F401
    except ImportError:
        return
    operators = torch.ops.torch_nn
    recorder.rules[operators._linear_cross_entropy_batch_chunked.default] = rule
    recorder.rules[operators._linear_cross_entropy_batch_chunked_no_reduction.default] = rule
