"""Data parallelism with other dimensions: replicas average gradients after the last backward, and stay equal."""

from collections.abc import Iterable, Iterator
from typing import Any

from perfsuite.rank.norms import is_sharded, local
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Tensor


def average_gradients(gradients: Iterable[Tensor], group: Any) -> None:
    """All-reduce each gradient over the group and divide by its size, without buckets and without overlap."""
    import torch.distributed as dist

    ranks = dist.get_world_size(group)
    kept = [local(gradient) for gradient in gradients]
    works = [dist.all_reduce(gradient, group=group, async_op=True) for gradient in kept]
    for gradient, work in zip(kept, works, strict=True):
        work.wait()
        gradient.div_(ranks)


def replicas(session: Session, parameters: Iterable[Tensor]) -> Iterator[tuple[Tensor, Any]]:
    """A rank's parameters for Trainer.replicated: each is the same in all replicas, and parameters that a
    tensor-parallel plan leaves whole (norms) are also the same on all tensor-parallel ranks.
    """
    for parameter in parameters:
        if session.layout.replicas > 1:
            yield parameter, session.mesh.get_group("replicas")
        if session.layout.tensor > 1 and not is_sharded(parameter, "tensor"):
            yield parameter, session.mesh.get_group("tensor")
