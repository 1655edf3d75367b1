"""FullyShardedDataParallel keeps parameters in flat ones, of which each rank has a part: the whole ones by their names.

So the launch on one rank, whose flat ones are whole, has the same names and the same numbers.
"""

from collections.abc import Iterator
from typing import Any

from perfsuite.rank.script.probes import plain
from perfsuite.rank.torch_types import Module, Tensor

WRAPPER = "FullyShardedDataParallel"


def handles_of(model: Module) -> Iterator[tuple[str, Any]]:
    """What holds each flat parameter of a model, and the plain name of the module that has its parameters."""
    for name, module in model.named_modules():
        handle = getattr(module, "_handle", None) if type(module).__name__ == WRAPPER else None
        if handle is not None:
            yield plain(name), handle


def flat_parameters(model: Module) -> Iterator[Tensor]:
    """Those that have the same numbers: the flat ones, or what the model shows of them."""
    for module in model.modules():
        if type(module).__name__ == WRAPPER:
            yield from module.parameters()


def whole_weights(model: Module) -> Iterator[tuple[str, Tensor]]:
    """All parameters in flat ones."""
    for name, handle in handles_of(model):
        flat = handle.flat_param
        yield from _named(name, handle, flat._local_shard if handle.uses_sharded_strategy else flat.data)


def whole_gradients(model: Module) -> Iterator[tuple[str, Tensor]]:
    """The gradients of those that have one."""
    for name, handle in handles_of(model):
        if (gradient := handle.sharded_grad) is not None:
            yield from _named(name, handle, gradient)


def _named(name: str, handle: Any, here: Any) -> Iterator[tuple[str, Tensor]]:
    """The parts of a flat tensor, of which this rank has ``here``."""
    import torch
    import torch.distributed as dist

    flat = handle.flat_param
    with torch.no_grad():
        here = here.detach().to(handle.device)
        if handle.uses_sharded_strategy:
            parts = [torch.empty_like(here) for _ in range(handle.world_size)]
            dist.all_gather(parts, here.contiguous(), group=handle.process_group)
            here = torch.cat(parts)
        size = flat._unpadded_unsharded_size.numel()
        for own, part in zip(flat._fqns, handle._get_unflat_views(here[:size]), strict=True):
            yield f"{name}.{own}" if name else own, part
