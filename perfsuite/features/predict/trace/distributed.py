"""A rank without other ranks: how torch.distributed treats fake tensors."""

import contextlib
import functools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves

from perfsuite.rank.session import Session

FIRST_BUCKET_BYTES = 2**20  # of DistributedDataParallel, and then bucket_cap_mb
BUCKET_BYTES = 25 * 2**20
# Operator → the argument that is copied as a whole: gathered into one flat tensor, or reduced in a clone.
COPIES = {"allgather_": 0, "_allgather_base_": 0, "reduce_scatter_": 1, "_reduce_scatter_base_": 1}


def join(session: Session) -> None:
    """Form a process group of the cell's size without other members; nothing is sent."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rank, world_size = str(session.rank), str(session.world_size)
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world_size, LOCAL_WORLD_SIZE=world_size)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("fake", store=FakeStore(), rank=session.rank, world_size=session.world_size)


def dtensors_plan_apart(recorder: Any) -> AbstractContextManager[Any]:
    """DTensor computes the shape of a result from fake tensors with the global shape, which no rank ever has. Waiting
    for a functional collective returns the tensor itself; its meta function creates another one.
    """
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    recorder.rules[torch.ops._c10d_functional.wait_tensor.default] = lambda recorder, func, args, kwargs: args[0]
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def apart(*arguments: Any) -> Any:
        with recorder.paused():
            return propagate(*arguments)

    return mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", apart)


def buckets_reduce_alone(recorder: Any) -> AbstractContextManager[Any]:
    """DistributedDataParallel's C++ reads the data of tensors to compare shapes over the ranks and to rebuild its
    buckets in the order of the first backward. It also waits for a result that the fake group does not give. None of
    this changes the memory: the buckets contain every gradient once, however they are cut.
    """
    from torch.nn.parallel import distributed as ddp

    kept = ddp.DistributedDataParallel.__init__

    def reduce(group, bucket):  # type: ignore[no-untyped-def]  # torch checks the annotations
        if recorder.timeline:  # the Reducer waits for all buckets when backward ends
            work = torch.distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
            torch.autograd.Variable._execution_engine.queue_callback(work.wait)
        else:
            torch.distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def initialize(module: Any, *arguments: Any, **options: Any) -> None:
        kept(module, *arguments, **options | {"init_sync": False})
        module.register_comm_hook(module.process_group, reduce)
        module.reducer = _Unchanging(module.reducer)

    return mock.patch.object(ddp.DistributedDataParallel, "__init__", initialize)


def buckets_are_cut(recorder: Any) -> AbstractContextManager[Any]:
    """DistributedDataParallel begins with one bucket and cuts it in the order of the first backward. That is the
    reverse of the order in which modules are defined, and buckets have DDP's default sizes.
    """
    plain: Any = torch.distributed._compute_bucket_assignment_by_size  # type: ignore[attr-defined]

    def cut(parameters: Any, limits: Any, sparse: Any, *_: Any) -> Any:
        sizes = [FIRST_BUCKET_BYTES, BUCKET_BYTES]
        numbers = list(range(len(parameters)))[::-1]
        buckets, limits = plain(parameters[::-1], sizes, sparse[::-1], numbers)
        return buckets[::-1], limits[::-1]  # DDP reverses them

    return mock.patch.object(torch.distributed, "_compute_bucket_assignment_by_size", cut)


class _Unchanging:
    """A Reducer that keeps its buckets."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def _rebuild_buckets(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)


@contextlib.contextmanager
def meshes_are_real(recorder: Any) -> Iterator[None]:
    """A mesh is a tensor of ranks, from which process groups are made."""
    from torch.distributed import device_mesh

    def apart(function: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            with recorder.paused(), unset_fake_temporarily():
                return function(*arguments, **options)

        return run

    kind = device_mesh.DeviceMesh
    with (
        mock.patch.object(device_mesh, "init_device_mesh", apart(device_mesh.init_device_mesh)),
        mock.patch.object(kind, "__init__", apart(kind.__init__)),
    ):
        yield


def lists_are_sent_one_by_one(recorder: Any) -> None:
    """Collectives of several tensors have no meta function; those of one do, and allocate as little."""
    c10d = torch.ops.c10d

    def all_reduce(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
        tensors, group, operation = args[:3]
        return c10d.allreduce_.default(tensors, group, operation, None)[1]

    def each(one: Any) -> Any:
        def run(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
            outputs, inputs, *more = args
            rule = recorder.rules.get(one)
            for out, own in zip(outputs, inputs, strict=True):
                sent = rule(recorder, one, (out, own, *more), {}) if rule else one(out, own, *more)
            return sent[1]

        return run

    recorder.rules |= {
        c10d.allreduce_coalesced_.default: all_reduce,
        c10d.allgather_into_tensor_coalesced_.default: each(c10d._allgather_base_.default),
        c10d.reduce_scatter_tensor_coalesced_.default: each(c10d._reduce_scatter_base_.default),
    }


def objects_are_alike(recorder: Any) -> AbstractContextManager[Any]:
    """Ranks exchange pickled objects to see that theirs are the same; a fake tensor has no bytes to unpickle."""

    def gather(objects: list[Any], own: Any, group: Any = None) -> None:
        objects[:] = [own] * len(objects)

    return mock.patch.object(torch.distributed, "all_gather_object", gather)


def sends_hold_tensors(recorder: Any) -> AbstractContextManager[Any]:
    """The work of a pipeline's send keeps the tensors until it is freed; the fake group's work keeps nothing."""
    from torch.distributed.pipelining import schedules

    send = schedules._batch_p2p

    class Holding:
        def __init__(self, work: Any, tensors: Any) -> None:
            self.work, self.tensors = work, tensors

        def wait(self, *arguments: Any) -> Any:
            return self.work.wait(*arguments)

    def hold(operations: Any, desc: Any = None) -> Any:
        works, tensors = send(operations, desc), [operation.tensor for operation in operations]
        if len(works) == len(tensors):
            return [Holding(work, tensor) for work, tensor in zip(works, tensors, strict=True)]
        return [Holding(work, tensors) for work in works]

    return mock.patch.object(schedules, "_batch_p2p", hold)


def stages_agree(recorder: Any) -> AbstractContextManager[Any]:
    """Pipeline stages vote on whether all know the shapes of their messages. All are alike, so one vote suffices."""
    from torch.distributed.pipelining import stage as module

    stage: Any = module

    def vote(one: Any, has_backward: bool, received_acc: Any = None) -> torch.Tensor:
        return torch.tensor([int(not stage.InferenceMode.needs_dynamic(one._user_meta, has_backward))])

    def result(one: Any, received_result: Any = None) -> torch.Tensor:
        return vote(one, True)

    return mock.patch.multiple(stage.PipelineStage, _warmup_forward_vote=vote, _warmup_backward_result=result)


def collectives_copy(recorder: Any) -> None:
    """Tensors that are gathered or scattered exist twice while gloo works on them
    (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).
    """
    for name, place in COPIES.items():
        recorder.rules[getattr(torch.ops.c10d, name).default] = functools.partial(_copying, place)


def _copying(place: int, recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    out = func(*args, **kwargs)
    tensors = (leaf for leaf in tree_leaves(args[place]) if isinstance(leaf, torch.Tensor))
    recorder.scratch(sum(tensor.numel() * tensor.element_size() for tensor in tensors), str(func))
    return out
