"""Faults of the parameter update, called as those of rank/faults: a reduction, an accumulation and a scale that are
wrong. Replicas stay equal, so that nothing but the numbers is wrong.
"""

import dataclasses
import weakref

from perfsuite.errors import RankError
from perfsuite.rank.faults.ranks import sum_not_mean, zero_no_reduction


def wrong_reduction(session, trainer, meters):
    """The engine sums where it must average, or reduces what stages share twice, or not at all."""
    break_it = {
        "ddp": sum_not_mean,
        "zero1": zero_no_reduction,
        "zero2": zero_no_reduction,
        "zero3": _zero3_sums,
        "fsdp1": _fsdp1_sums,
        "fsdp2": _fsdp2_sums,
        "tp": _replicas_sum,
        "pp_1f1b": _tied_twice,
        "pp_deepspeed": _deepspeed_tied_twice,
    }
    break_it[session.strategy.engine.name](session, trainer, meters)


def _zero3_sums(session, trainer, meters):
    from deepspeed.runtime.zero import stage3

    average = stage3.reduce_scatter_coalesced
    stage3.reduce_scatter_coalesced = lambda *given: [part.mul_(session.world_size) for part in average(*given)]


def _fsdp1_sums(session, trainer, meters):
    for unit in trainer._units():
        unit._gradient_predivide_factor = unit._gradient_postdivide_factor = 1


def _fsdp2_sums(session, trainer, meters):
    from torch.distributed.fsdp import FSDPModule

    for module in trainer.module.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other


def _replicas_sum(session, trainer, meters):
    from perfsuite.rank.norms import local

    average = trainer.reduce_gradients

    def add():
        average()
        for gradient in trainer.gradients():
            local(gradient).mul_(session.layout.replicas)

    trainer.reduce_gradients = add


def _tied_twice(session, trainer, meters):
    reduce = trainer.reduce_gradients
    trainer.reduce_gradients = lambda: (reduce(), reduce())


def _deepspeed_tied_twice(session, trainer, meters):
    tied = trainer.model.get_tied_weights_and_groups
    trainer.model.get_tied_weights_and_groups = lambda: 2 * tied()


def last_micro_batch(session, trainer, meters):
    """Only the step's last micro-batch counts."""
    make = trainer.batch

    def last(step):
        *others, counts = make(step)
        return [*(dataclasses.replace(one, weight=0.0) for one in others), counts]

    trainer.batch = last


def forgets(session, trainer, meters):
    """Gradients are freed before every micro-batch, as by a zero_grad in the wrong place."""
    session.phases.listen(lambda phase: trainer.optimizer.zero_grad() if phase == "forward" else None)


def not_divided(session, trainer, meters):
    """The loss of a micro-batch is not divided by their number, as in transformers 4.48.0."""
    make = trainer.batch

    def undivided(step):
        batch = make(step)
        return [dataclasses.replace(one, weight=one.weight * len(batch)) for one in batch]

    trainer.batch = undivided


def wrong_scale(session, trainer, meters):
    """The gradient that comes into the last layer is doubled; in a pipeline, that of the second stage."""
    stages = session.layout.pipeline > 1
    names = {name for module in trainer.module.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    kinds = {module: {kind.__name__ for kind in type(module).__mro__} for module in trainer.module.modules()}
    layers = [module for module, kind in kinds.items() if kind & names]  # fully_shard makes a subclass
    if not stages or session.stage == 1:
        layers[-1].register_forward_hook(_doubles)


def _doubles(module, arguments, output):
    hidden = output[0] if isinstance(output, tuple) else output
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: 2 * gradient)


_measured: list[weakref.ref] = []


def still_alive(session, trainer, meters):
    """Ends the cell if the measured model is alive when the one to compare is made."""
    if meters:
        _measured.append(weakref.ref(trainer.model))
    elif _measured[0]() is not None:
        raise RankError("The measured model is still alive.")


def cannot_choose_attention(session, trainer, meters):
    """transformers is as before 4.54.0, without the method that chooses a built model's attention."""
    import transformers

    if hasattr(transformers.PreTrainedModel, "set_attn_implementation"):  # the engine is prepared twice
        del transformers.PreTrainedModel.set_attn_implementation
