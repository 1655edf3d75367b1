"""Functions of DeepSpeed that a rank without other ranks, or without data, cannot run."""

import contextlib
import importlib
import itertools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

MORE_THAN_ANY = 2**62  # bytes: no device has as many
WHERE = (
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.partition_parameters",
    "deepspeed.runtime.zero.partitioned_param_coordinator",
)


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces communication between ranks."""


@contextlib.contextmanager
def ranks_agree(recorder: Any) -> Iterator[None]:
    """Stage 3 asserts that all ranks gather the same parameters, but there are no other ranks."""
    with contextlib.ExitStack() as stack:
        for name in WHERE:
            module = importlib.import_module(name)
            stack.enter_context(mock.patch.object(module, "assert_ints_same_as_other_ranks", _nothing))
        yield


def ranges_have_no_names(recorder: Any) -> AbstractContextManager[Any]:
    """DeepSpeed names hundreds of thousands of ranges for NVIDIA's profiler, which no trace has."""
    from deepspeed.utils import nvtx

    return mock.patch.object(nvtx, "enable_nvtx", False, create=True)


def modules_list_parameters(recorder: Any) -> AbstractContextManager[Any]:
    """When stage 3 releases a module, it lists the parameters of all later ones, through three generators each. The
    list is the same without them.
    """
    from deepspeed.runtime.zero import partitioned_param_coordinator as coordinator

    plain = coordinator.iter_params

    def parameters(module: Any, recurse: bool = False) -> Any:
        if recurse:
            return plain(module, recurse=True)
        own = [parameter for parameter in module._parameters.values() if parameter is not None]
        return own + [parameter for _, parameter in module.ds_external_parameters()]

    return mock.patch.object(coordinator, "iter_params", parameters)


def first_rank_is_alike(recorder: Any) -> AbstractContextManager[Any]:
    """AutoTP makes the first rank pickle its inputs for the others, which already have the same ones."""
    import torch.distributed as dist

    return mock.patch.object(dist, "broadcast_object_list", _nothing)


def devices_are_large(recorder: Any) -> AbstractContextManager[Any]:
    """Stages 1 and 2 flatten the parameters on the host if the device lacks room for a copy. The free memory of the
    tracing machine is not the device's.
    """
    from deepspeed.accelerator import get_accelerator

    return mock.patch.object(type(get_accelerator()), "available_memory", lambda *_: MORE_THAN_ANY)


def devices_have_half_precision(recorder: Any) -> AbstractContextManager[Any]:
    """The tracing machine's instructions are not the device's: all devices since Volta compute in fp16, and torch
    accepts bf16 on all of them.
    """
    from deepspeed.accelerator import get_accelerator

    kind = type(get_accelerator())
    return mock.patch.multiple(kind, is_fp16_supported=lambda _: True, is_bf16_supported=lambda _: True)


def devices_have_streams(recorder: Any) -> AbstractContextManager[Any]:
    """DeepSpeed's CPU has none. Stage 3 gathers on one CUDA stream and reduces on another (``overlap_comm``), so their
    buffers are in separate pools; torch.cpu's streams are those of predict/trace/streams.py. An event has always
    passed. A CPU has no cache to empty either.
    """
    import torch
    from deepspeed.accelerator import get_accelerator

    main = torch.cpu.current_stream()
    return mock.patch.multiple(
        type(get_accelerator()),
        Stream=property(lambda _: torch.cpu.Stream),
        Event=property(lambda _: lambda **_: torch.cpu.Event()),
        stream=lambda _, chosen: torch.cpu.stream(chosen) if chosen is not None else contextlib.nullcontext(),
        current_stream=lambda *_: torch.cpu.current_stream(),
        default_stream=lambda *_: main,
        empty_cache=lambda _: torch.cuda.empty_cache(),
        is_synchronized_device=lambda _: False,
        resolves_data_dependency=lambda _: False,
        handles_memory_backpressure=lambda _: False,
    )


@contextlib.contextmanager
def other_ranks_parts_stand_together(recorder: Any) -> Iterator[None]:
    """Stage 3 makes a view per rank of everything that it gathers and reduces: with hundreds of ranks, millions of
    operators that need no memory. From MANY_RANKS on, the views of other ranks are one; the allocations are the same.
    """
    import torch
    import torch.distributed as dist
    from deepspeed.runtime.zero import partition_parameters, stage3

    if dist.get_world_size() < MANY_RANKS:
        yield
        return
    narrow = torch.Tensor.narrow

    def part(tensor: Any, dimension: int, start: Any, length: Any) -> Any:
        """One rank's part of a flat tensor that is gathered. A tensor that is cut into unequal parts is not of this
        kind.
        """
        gathers = sys._getframe(1).f_globals["__name__"] == partition_parameters.__name__
        equal = gathers and length * dist.get_world_size() == tensor.numel()
        return tensor if equal and start != dist.get_rank() * length else narrow(tensor, dimension, start, length)

    def wait(handle: Any, handle_dependency: bool = True) -> None:
        """Like AllGatherCoalescedHandle.wait: every parameter is assembled in its own memory."""
        if handle.complete:
            return
        handle.allgather_handle.wait()
        for parameter in handle.params:
            whole = torch.empty(parameter.ds_numel, dtype=handle.partitions[0].dtype)
            parameter.data = whole.view(parameter.ds_shape).to(parameter.ds_tensor.dtype)
            parameter.ds_status = partition_parameters.ZeroParamStatus.AVAILABLE
        handle.complete = True

    def reduce_scatter(tensors: Any, group: Any = None) -> Any:
        """Like reduce_scatter_coalesced: several tensors, or one with padding, are concatenated first."""
        ranks, rank = dist.get_world_size(group), dist.get_rank(group)
        shares = [-(-tensor.numel() // ranks) for tensor in tensors]
        flat = tensors[0].view(-1)
        if len(tensors) > 1 or tensors[0].numel() % ranks:
            flat = torch.empty(sum(shares) * ranks, dtype=flat.dtype)
        flat.div_(ranks)
        mine = narrow(flat, 0, rank * sum(shares), sum(shares))
        dist.reduce_scatter_tensor(mine, flat, group=group)
        ends = itertools.accumulate(shares)
        held = [max(0, min(one.numel() - rank * share, share)) for one, share in zip(tensors, shares, strict=True)]
        return [narrow(mine, 0, end - share, size) for end, share, size in zip(ends, shares, held, strict=True)]

    with (
        mock.patch.object(torch.Tensor, "narrow", part),
        mock.patch.object(partition_parameters.AllGatherCoalescedHandle, "wait", wait),
        mock.patch.object(stage3, "reduce_scatter_coalesced", reduce_scatter),
    ):
        yield


MANY_RANKS = 17
PATCHES = (
    ranks_agree,
    ranges_have_no_names,
    modules_list_parameters,
    first_rank_is_alike,
    devices_are_large,
    other_ranks_parts_stand_together,
)
