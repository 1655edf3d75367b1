"""torch's types, for annotations alone: nothing is imported when the code runs, so the parent can read engine files."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.amp import GradScaler
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    DType: TypeAlias = torch.dtype
    TorchDevice: TypeAlias = torch.device
else:
    Tensor = TorchDevice = DType = DeviceMesh = Module = Parameter = GradScaler = LRScheduler = Optimizer = Any

__all__ = [
    "DType",
    "DeviceMesh",
    "GradScaler",
    "LRScheduler",
    "Module",
    "Optimizer",
    "Parameter",
    "Tensor",
    "TorchDevice",
]
