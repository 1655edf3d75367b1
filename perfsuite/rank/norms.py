"""The norm of a gradient that may be sharded, and clipping by it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perfsuite.rank.torch_types import Tensor, TorchDevice


def local(tensor: Any) -> Any:
    """This rank's part of a tensor: a DTensor's shard, or the tensor itself. No communication."""
    return getattr(tensor, "_local_tensor", tensor)


def unwrapped(tensor: Any) -> Any:
    """What a transform of torch.func has wrapped, or the tensor itself: only that has a storage."""
    from torch._C import _functorch

    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def with_storage(tensor: Any) -> Iterator[Any]:
    """What keeps this rank's numbers of a tensor: of a sparse one, as of an embedding's gradient, its indices and
    values; of a tensor subclass, as of torchao's float8 weights and 8-bit states, its inner tensors. It is not asked
    for them by __tensor_flatten__(), in which torchao 0.18 reads the number of a scale.
    """
    import torch

    tensor = local(unwrapped(tensor))
    if hasattr(tensor, "__tensor_flatten__"):
        for inner in vars(tensor).values():
            if isinstance(inner, torch.Tensor):
                yield from with_storage(inner)
    else:
        yield from (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)


def elements_of(gradient: Any) -> Any:
    """The elements that are there: all, or those of a sparse gradient, each once."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def norm_of(tensor: Any) -> float:
    """The 2-norm of the elements that are there, of any type: a model may count in integers, or be complex."""
    import torch

    elements = elements_of(tensor.detach())
    if elements.is_complex():
        elements = torch.view_as_real(elements.resolve_conj())
    elif not elements.is_floating_point() or elements.element_size() == 1:
        elements = elements.double()
    return float(torch.linalg.vector_norm(elements, dtype=torch.float64))


def stored(parameter: Any) -> Iterator[Any]:
    """What this rank keeps of a parameter between its uses, which ZeRO-3 gathers: its shard, a small one whole, and its
    shard of a second partition of ZeRO++.
    """
    yield local(getattr(parameter, "ds_tensor", parameter))
    if getattr(parameter, "ds_secondary_tensor", None) is not None:
        yield parameter.ds_secondary_tensor
    if getattr(parameter, "ds_persist", False):
        yield parameter


def whole(tensor: Any, device: TorchDevice) -> Any:
    """All of a DTensor, gathered on the rank's device, since its shards may be offloaded; a plain tensor as it is."""
    import torch

    if not hasattr(tensor, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        here, shape, stride = tensor.to_local().to(device), tensor.shape, tensor.stride()
        return DTensor.from_local(here, tensor.device_mesh, tensor.placements, shape=shape, stride=stride).full_tensor()


def gradient_norm(gradients: Iterable[Tensor], device: TorchDevice, groups: Sequence[Any] = ()) -> Tensor:
    """The 2-norm of the gradient as a scalar on the rank's device, equal on all ranks that share it.

    A DTensor's squares are summed over the mesh dimensions along which it is sharded; ``groups`` are process groups
    over which everything is also sharded (flat shards, pipeline stages). A replicated tensor counts once. Offloaded
    gradients are on the host, but NCCL sums only on the device.
    """
    import torch
    import torch.distributed as dist

    by_groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for gradient in gradients:
        by_groups.setdefault(_sharding_groups(gradient), []).append(local(gradient))
    if not groups and list(by_groups) == [()]:
        return torch.nn.utils.get_total_norm(by_groups[()]).to(device)
    squares = []
    for sharded_over, tensors in by_groups.items():
        square = torch.nn.utils.get_total_norm(tensors).to(device, torch.float32) ** 2
        for group in sharded_over:
            dist.all_reduce(square, group=group)
        squares.append(square)
    # With flat shards a rank may have none of the trained parameters.
    total = torch.stack(squares).sum() if squares else torch.zeros((), device=device)
    for group in groups:
        dist.all_reduce(total, group=group)
    return total.sqrt()


def is_sharded(tensor: Any, dimension: str) -> bool:
    """Whether a DTensor is divided along that mesh dimension; a plain tensor is not."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None or dimension not in (mesh.mesh_dim_names or ()):
        return False
    placement = tensor.placements[mesh.mesh_dim_names.index(dimension)]
    return not placement.is_replicate() and not placement.is_partial()


def clip(gradients: Iterable[Tensor], norm: Tensor, largest: float) -> None:
    """Scale all gradients so that their norm is at most ``largest``, as torch.nn.utils.clip_grads_with_norm_ does.

    That one multiplies DTensors, not their shards: torch 2.13 refuses DTensors beside plain tensors or of two meshes.
    """
    import torch

    factor = torch.clamp(largest / (norm + 1e-6), max=1.0)
    by_device: dict[TorchDevice, list[Tensor]] = {}  # empty if a rank's flat shard has no trained parameters
    for gradient in map(local, gradients):
        by_device.setdefault(gradient.device, []).append(gradient)
    for device, kept in by_device.items():
        torch._foreach_mul_(kept, factor.to(device))


def _sharding_groups(tensor: Any) -> tuple[Any, ...]:
    """The process groups of the mesh dimensions along which a DTensor is sharded; none for a plain tensor."""
    placements = getattr(tensor, "placements", ())
    assert not any(placement.is_partial() for placement in placements), "a gradient was not reduced"
    sharded = (index for index, placement in enumerate(placements) if not placement.is_replicate())
    return tuple(tensor.device_mesh.get_group(index) for index in sharded)


def shards_of(model: Any) -> set[int]:
    """The ids of parameters of which each rank has a part: of fully_shard, of ZeRO-3, and all in the wrapper of FSDP1,
    where they may have no mark.
    """
    marked = {id(one) for one in model.parameters() if hasattr(one, "_local_tensor") or hasattr(one, "ds_id")}
    wrappers = [part for part in model.modules() if type(part).__name__ == "FullyShardedDataParallel"]
    return marked.union(*({id(one) for one in part.parameters()} for part in wrappers))
