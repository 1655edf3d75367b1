"""Faults in ranks or in their computations, which a Job names: each is called in every rank after its engine is
prepared. The selftest and the tests put them there, and show that the gate is red.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def at(session: Session, phase: str, step: int, action: Callable[[], object], rank: int = 1) -> None:
    """Do it on one rank when that phase of that step begins (steps count from 1)."""
    steps = 0

    def listen(now: str) -> None:
        nonlocal steps
        steps += now == "batch"
        if now == phase and steps == step and session.rank == rank:
            action()

    session.phases.listen(listen)


def exchange(session: Session, **fields: object) -> None:
    """Change fields of the recipe, which nothing but a fault does once a rank is there."""
    object.__setattr__(session, "recipe", dataclasses.replace(session.recipe, **fields))  # type: ignore[arg-type]


def _raise(error: BaseException) -> None:
    raise error


def harmless(session: Session, trainer: Any, meters: Any) -> None:
    """No fault: a gate that is red here raises a false alarm."""


def killed(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 gets SIGKILL in the backward of step 3."""
    at(session, "backward", 3, lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfault(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 dies of a segmentation fault in the optimizer of step 2."""
    at(session, "optimizer", 2, lambda: os.kill(os.getpid(), signal.SIGSEGV))


def stopped(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 is stopped, as by a debugger, in the forward of step 2."""
    at(session, "forward", 2, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def hangs(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 sleeps for ever in the forward of step 2."""
    at(session, "forward", 2, lambda: time.sleep(10_000))


def raises(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 raises in the forward of step 2."""
    at(session, "forward", 2, lambda: _raise(ValueError("a fault put here on purpose")))


def exits(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 exits without a message."""
    at(session, "forward", 2, lambda: os._exit(3))


def nan(session: Session, trainer: Any, meters: Any) -> None:
    """A weight of rank 0 becomes NaN in step 3."""

    def poison() -> None:
        import torch

        with torch.no_grad():
            next(iter(trainer.model.parameters())).fill_(float("nan"))

    at(session, "forward", 3, poison, rank=0)


def _tell(trainer: Any, **factors: float) -> None:
    """From now on a step's loss or gradient norm, if it has one, is reported as multiplied by these factors."""
    step = trainer.step

    def falsified(batch: Any) -> Any:
        outcome = step(batch)
        known = {name: getattr(outcome, name) for name in factors}
        scaled = {name: value * factors[name] for name, value in known.items() if value is not None}
        return dataclasses.replace(outcome, **scaled)

    trainer.step = falsified


def infinite_loss(session: Session, trainer: Any, meters: Any) -> None:
    """The loss overflows."""
    _tell(trainer, loss=float("inf"))


def loss_off(session: Session, trainer: Any, meters: Any) -> None:
    """The loss is 0.05 % too large; nothing else differs."""
    _tell(trainer, loss=1.0005)


def norm_off(session: Session, trainer: Any, meters: Any) -> None:
    """The gradient norm is 1 % too large; nothing else differs."""
    _tell(trainer, gradient_norm=1.01)


def update_off(session: Session, trainer: Any, meters: Any) -> None:
    """Gradients are 1 % too large after their norm is read. Adam divides them by their size, so it hides this."""

    def enlarge(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(1.01)

    trainer.optimizer.register_step_pre_hook(enlarge)


def data_shifted(session: Session, trainer: Any, meters: Any) -> None:
    """Every step trains on the batch of the next step."""
    make = trainer.batch
    trainer.batch = lambda number: make(number + 1)


def half_batch(session: Session, trainer: Any, meters: Any) -> None:
    """Half of the samples do not reach the model."""
    make = trainer.batch

    def halved(number: int) -> Any:
        return [
            dataclasses.replace(part, inputs={name: rows[: len(rows) // 2] for name, rows in part.named.items()})
            for part in make(number)
        ]

    trainer.batch = halved


def leak(session: Session, trainer: Any, meters: Any) -> None:
    """After every step, one more tensor stays alive."""
    import torch

    kept: list[Any] = []
    session.phases.listen(lambda phase: kept.append(torch.zeros(16)) if phase == "end" else None)


def _extra(size: int, session: Session, trainer: Any, meters: Any) -> None:
    import torch

    trainer.model.register_forward_pre_hook(
        functools.partial(lambda kept, module, arguments: None, torch.zeros(size, dtype=torch.uint8))
    )


def keeps_copies(session: Session, trainer: Any, meters: Any) -> None:
    """Autograd keeps a copy of every tensor that it keeps, as offloading does."""
    import torch

    def around() -> Any:
        return torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept)

    exchange(session, around=around)


def small_device(session: Session, trainer: Any, meters: Any) -> None:
    """The device has 4 MB."""
    if session.memory:
        session.memory.source.set_capacity(4_000_000)


def layer_lost(session: Session, trainer: Any, meters: Any) -> None:
    """The model's last layer returns its input; its parameters get zero gradients."""
    from perfsuite.rank.blocks import blocks

    layer: Any = blocks(trainer.model)[-1]
    layer.forward = lambda hidden, *_, **__: hidden + 0 * sum(p.sum() for p in layer.parameters())


def forward_twice(session: Session, trainer: Any, meters: Any) -> None:
    """Every layer's forward runs twice."""
    import torch

    from perfsuite.rank.blocks import blocks

    def again(layer: Any, arguments: Any, keywords: Any) -> None:
        with torch.no_grad():
            type(layer).forward(layer, *arguments, **keywords)

    for layer in blocks(trainer.model):
        layer.register_forward_pre_hook(again, with_kwargs=True)


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


def expert_without_tokens(session: Session, trainer: Any, meters: Any) -> None:
    """The first layer's router never chooses its first expert: every route to it goes to the second, as with a wrong
    bias of a router.
    """
    import torch

    experts = next(module for module in trainer.model.modules() if type(module).__name__.endswith("Experts"))

    def rerouted(module: Any, args: Any) -> Any:
        hidden, chosen, weights = args
        return hidden, torch.where(chosen == 0, 1, chosen), weights

    experts.register_forward_pre_hook(rerouted)


def routes_dropped(session: Session, trainer: Any, meters: Any) -> None:
    """The first layer's experts leave out the last token, as with a capacity that is too small."""
    experts = next(module for module in trainer.model.modules() if type(module).__name__.endswith("Experts"))

    def capped(module: Any, args: Any) -> Any:
        hidden, chosen, weights = args
        weights = weights.clone()
        weights[-1] = 0
        return hidden, chosen, weights

    experts.register_forward_pre_hook(capped)


def auxiliary_loss_dropped(session: Session, trainer: Any, meters: Any) -> None:
    """The routers' loss is computed, but does not reach backward."""
    trainer.model.router_aux_loss_coef = 0.0


def graph_break(session: Session, trainer: Any, meters: Any) -> None:
    """The forward of every layer has one graph break more, as where a library prints or reads a number."""
    import torch

    _change_layers(trainer, lambda layer: torch._dynamo.graph_break())


def recompiles(session: Session, trainer: Any, meters: Any, most: int = 1000) -> None:
    """Every layer's forward reads a name that is another one in each step."""
    layers = _change_layers(trainer, lambda layer: layer.name_of_step == "")
    steps = itertools.count()

    def listen(phase: str) -> None:
        if phase == "batch":
            step = next(steps)
            for layer in layers:
                layer.name_of_step = str(min(step, most))

    session.phases.listen(listen)
    listen("batch")  # so that the first step has one


def _change_layers(trainer: Any, begin: Callable[[Any], object]) -> list[Any]:
    """Let the forward of all layers begin with something else; they still share it, so it is compiled once."""
    from perfsuite.rank.blocks import blocks

    layers: list[Any] = list(blocks(trainer.model))
    kind = type(layers[0])
    forward = kind.forward

    def changed(layer: Any, *arguments: Any, **keywords: Any) -> Any:
        begin(layer)
        return forward(layer, *arguments, **keywords)

    kind.forward = changed
    return layers


def float8_lost(session: Session, trainer: Any, meters: Any) -> None:
    """fp8 silently falls back to bf16: torchao's layers multiply as torch's do."""
    import torch

    for layer in _float8_layers(trainer):
        layer.forward = functools.partial(torch.nn.Linear.forward, layer)


def float8_emulated(session: Session, trainer: Any, meters: Any) -> None:
    """Tensors are rounded to float8, but multiplied in the dtype that they had before."""
    for layer in _float8_layers(trainer):
        layer.linear_mm_config = type(layer.linear_mm_config)(
            *(one._replace(emulate=True) for one in layer.linear_mm_config)
        )


def _float8_layers(trainer: Any) -> Iterator[Any]:
    from torchao.float8.float8_linear import Float8Linear

    return (module for module in trainer.model.modules() if isinstance(module, Float8Linear))


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


def __getattr__(name: str) -> Callable[..., None]:
    kind, _, size = name.partition("_")
    if kind != "extra" or not size.isdecimal():
        raise AttributeError(f"no fault is named {name!r}")
    return functools.partial(_extra, int(size))
