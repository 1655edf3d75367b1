"""Data parallelism beside other dimensions: gradients of replicas are averaged after the last backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfsuite.training.norms import local

if TYPE_CHECKING:
    import torch


def average_gradients(gradients: Iterable[torch.Tensor], group: Any) -> None:
    """All-reduce each gradient over the group and divide by its size, without buckets and without overlap."""
    import torch.distributed as dist

    ranks = dist.get_world_size(group)
    kept = [local(gradient) for gradient in gradients]
    works = [dist.all_reduce(gradient, group=group, async_op=True) for gradient in kept]
    for gradient, work in zip(kept, works, strict=True):
        work.wait()
        gradient.div_(ranks)
