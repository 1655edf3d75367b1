"""What proves that a rank of Megatron is what its name says. Each function raises WrongEngine, or returns evidence."""

from typing import Any

from perfsuite.engines._megatron_parts import is_of_tokens, weights_of
from perfsuite.engines._megatron_weights import is_divided
from perfsuite.errors import WrongEngine

Evidence = dict[str, str | int]


def check_schedule(trainer: Any) -> Evidence:
    """The schedule has the name, a stage its layers, and gradients are averaged over the replicas."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    layout, name = trainer.session.layout, trainer.session.strategy.engine.name
    wanted = trainer.schedule if layout.pipeline > 1 else "forward_backward_no_pipelining"
    if (schedule := get_forward_backward_func().__name__) != wanted:
        raise WrongEngine(f"{name} must run {wanted}, but Megatron's schedule is {schedule}.")
    layers, depth = sum(len(stage.decoder.layers) for stage in trainer.stages), trainer.config.num_layers
    if layers * layout.pipeline != depth:
        raise WrongEngine(f"A rank must hold 1/{layout.pipeline} of {depth} layers, but this one has {layers}.")
    replicas = {chunk.dp_group.size() for chunk in trainer.chunks}
    if replicas != {layout.replicas}:
        raise WrongEngine(f"{name} must average over {layout.replicas} ranks, but Megatron does over {replicas}.")
    return {"schedule": schedule, "layers": layers, "replicas": layout.replicas}


def check_divided(trainer: Any) -> Evidence:
    """A rank has 1/n of every matrix, but for the learned positions."""
    width, elements = trainer.session.layout.tensor, 0
    for stage in trainer.stages:
        for weight in weights_of(stage, trainer.session.job.model.vocabulary):
            here, whole = weight.parameter.numel(), trainer.whole[weight.name]
            matrix = weight.parameter.dim() > 1 and not weight.name.endswith("wpe.weight")
            if here * (width if is_divided(weight.parameter) or matrix else 1) != whole:
                raise WrongEngine(
                    f"{weight.name} must be divided over {width} ranks, but this one has {here} of {whole}."
                )
            elements += here
    return {"tensor_ranks": width, "elements_here": elements}


def check_sequences(trainer: Any) -> Evidence:
    """Where ranks share sequences, Megatron sums the gradients of all that is not divided, but for the embedding's:
    it has all tokens. Elsewhere it sums none.
    """
    shared = trainer.config.sequence_parallel
    for stage in trainer.stages:
        for name, parameter in stage.named_parameters():
            of_tokens = shared and not is_divided(parameter) and not name.startswith("embedding.")
            if is_of_tokens(parameter) != of_tokens:
                does = "must" if of_tokens else "must not"
                raise WrongEngine(f"Megatron {does} sum the gradient of {name} over the tensor-parallel ranks.")
    return {"sequence_ranks": trainer.session.layout.tensor if shared else 1}


def check_optimizer(trainer: Any) -> Evidence:
    """The optimizer has 1/n of the parameters if it is distributed, and else all; below fp32 in fp32."""
    import torch

    (own,) = trainer.optimizer.chained_optimizers
    fp32 = trainer.config.params_dtype == torch.float32
    whole_ones = "FP32Optimizer" if fp32 else "Float16OptimizerWithFloat16Params"
    wanted, found = "DistributedOptimizer" if trainer.distributed else whole_ones, type(own).__name__
    if found != wanted:
        raise WrongEngine(f"{trainer.session.strategy.engine.name} needs Megatron's {wanted}, but this is {found}.")
    masters = [parameter for group in own.optimizer.param_groups for parameter in group["params"]]
    if {master.dtype for master in masters} != {torch.float32}:
        raise WrongEngine("Megatron's optimizer must step parameters in fp32.")
    held, whole = (
        sum(master.numel() for master in masters),
        sum(parameter.numel() for parameter in trainer.model.parameters()),
    )
    ranks = trainer.session.layout.replicas if trainer.distributed else 1
    padded = sum(buffer.numel for chunk in trainer.chunks for buffer in chunk.buffers)
    # A rank has an equal part of the padded buffer, of which the last lacks the padding.
    if not (padded / ranks - (padded - whole) <= held <= padded / ranks):
        raise WrongEngine(f"A rank must step 1/{ranks} of {whole:,} parameters, but this one has {held:,}.")
    return {"optimizer": f"{found}({type(own.optimizer).__name__})", "stepped_elements_here": held}
