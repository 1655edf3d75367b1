"""fairscale's FullyShardedDataParallel on a CPU: torch.cpu answers what it asks of torch.cuda.

It gathers and reduces on CUDA streams. torch.cpu has the same calls, and its streams do nothing, since a CPU computes
in order. No operator, message or tensor differs. fairscale 0.4.13 is its last release; another one is refused.
"""

import types
from importlib import metadata
from typing import Any

from perfsuite.errors import Unsupported

RELEASE = "0.4.13"


def require_release() -> None:
    """Raises Unsupported at another release than the one that was read."""
    if (release := metadata.version("fairscale")) != RELEASE:
        raise Unsupported(f"fairscale_fsdp was written for fairscale {RELEASE}, but {release} is installed.")


def let_run_on_cpu() -> None:
    """In this rank alone: the module's ``torch.cuda`` becomes ``torch.cpu``, and no tensor waits for a stream."""
    import torch
    from fairscale.nn.data_parallel import fully_sharded_data_parallel

    class TorchWithoutCuda(types.ModuleType):
        cuda = torch.cpu

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    library: Any = fully_sharded_data_parallel
    library.torch = TorchWithoutCuda("torch")
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda *_: None
