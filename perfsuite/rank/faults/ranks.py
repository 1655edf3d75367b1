"""Ranks that do not exchange what they should."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def unwrapped(session: Session, trainer: Any, meters: Any) -> None:
    """DDP is silently lost, as accelerate and the Trainer can do."""
    trainer.module = trainer.model
    trainer.accumulating = contextlib.nullcontext


def alone(session: Session, trainer: Any, meters: Any) -> None:
    """DDP's process group has one rank, as if the world size was lost."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    groups = [dist.new_group([rank]) for rank in range(session.world_size)]
    trainer.module = DistributedDataParallel(trainer.model, process_group=groups[session.rank])


def whole_shards(session: Session, trainer: Any, meters: Any) -> None:
    """FSDP2 shards every parameter over one rank, as if the world size was lost: every rank has all of it."""
    from torch.distributed.device_mesh import init_device_mesh

    from perfsuite.rank.build_model import build_model

    mesh = init_device_mesh(session.job.device, (session.world_size, 1), mesh_dim_names=("lost", "shards"))
    session.meshes.of = lambda facts: mesh  # type: ignore[method-assign]
    trainer.__init__(session, build_model(session))


def _done(bucket: Any) -> Any:
    """The return value of a DDP hook whose gradients are ready."""
    import torch

    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def no_reduction(session: Session, trainer: Any, meters: Any) -> None:
    """DDP's gradients are not reduced over the ranks."""
    _reduce_by(_done, trainer)


def sum_not_mean(session: Session, trainer: Any, meters: Any) -> None:
    """DDP's gradients are summed over the ranks, not averaged: replicas stay equal, but the training is wrong."""
    import torch.distributed as dist

    def add(bucket: Any) -> Any:
        dist.all_reduce(bucket.buffer())
        return _done(bucket)

    _reduce_by(add, trainer)


def reduced_twice(session: Session, trainer: Any, meters: Any) -> None:
    """DDP's gradients are averaged, and then again, which changes only the bytes that are sent."""
    import torch.distributed as dist

    def average_twice(bucket: Any) -> Any:
        for _ in range(2):
            dist.all_reduce(bucket.buffer().div_(session.world_size))
        return _done(bucket)

    _reduce_by(average_twice, trainer)


def _reduce_by(reduce: Callable[[Any], Any], trainer: Any) -> None:
    """DDP checks the annotations of its hook, if it has any."""
    trainer.module.register_comm_hook(None, lambda state, bucket: reduce(bucket))


def zero_no_reduction(session: Session, trainer: Any, meters: Any) -> None:
    """The gradient averaging of ZeRO's stages 1 and 2 does nothing."""
    trainer.optimizer.average_tensor = lambda *arguments, **keywords: None


def megatron_no_reduction(session: Session, trainer: Any, meters: Any) -> None:
    """Megatron's gradients are not reduced over the replicas."""
    trainer.config.finalize_model_grads_func = lambda *arguments, **keywords: None


def megatron_no_sum(session: Session, trainer: Any, meters: Any) -> None:
    """Tensor-parallel ranks do not add up their parts of the hidden states."""
    from megatron.core.tensor_parallel import mappings

    mappings._reduce = lambda tensor, group: tensor


def megatron_loss_scaled(session: Session, trainer: Any, meters: Any) -> None:
    """Megatron's pipeline does not divide the loss by the number of micro-batches."""
    if not meters:
        return  # of the step whose update is compared: it is changed already
    from megatron.core.pipeline_parallel import schedules

    plain = schedules.forward_step_calc_loss

    def summed(*arguments: Any, **keywords: Any) -> Any:
        loss, tokens = plain(*arguments, **keywords)
        return loss * session.recipe.accumulation if trainer.stages[-1].post_process else loss, tokens

    schedules.forward_step_calc_loss = summed
