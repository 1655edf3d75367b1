"""Faults of how ranks share a model, called as those of rank/faults: what each rank holds, and who averages what."""

import importlib
from typing import Any


def no_average(session, trainer, meters):
    """Replicas keep their own gradients, and tied stages theirs."""
    trainer.reduce_gradients = lambda: None


def tp_wrong_norm(session, trainer, meters):
    """A norm of rank 1, which every rank holds whole, is changed."""
    import torch

    if session.rank == 1:
        with torch.no_grad():
            trainer.model.model.norm.weight.mul_(1.5)


def tp_whole_matrix(session, trainer, meters):
    """One matrix becomes whole on every rank, and the engine is asked again what it is."""
    import torch

    layer = trainer.model.lm_head
    layer.weight = torch.nn.Parameter(layer.weight.full_tensor().detach())
    trainer.check()


def fsdp_not_sharded(session, trainer, meters):
    """One matrix is divided by the tensor-parallel plan alone, and the engine is asked again what it is."""
    import torch
    from torch.distributed.tensor import distribute_tensor

    layer = trainer.model.lm_head
    whole = layer.weight.full_tensor().detach()
    layer.weight = torch.nn.Parameter(distribute_tensor(whole, session.mesh["tensor"]))
    trainer.check()


def stage_not_divided(session, trainer, meters):
    """One matrix of every stage becomes whole on its tensor-parallel ranks, and the engine is asked again."""
    import torch

    for stage in trainer.module.children():
        layer = stage.model.model.layers[0].mlp.up_proj
        layer.weight = torch.nn.Parameter(layer.weight.full_tensor().detach())
    trainer.check()


def masters_not_sharded(session, trainer, meters):
    """Every replica has all master parameters, and the engine is asked again what it is."""
    masters = trainer.optimizer.single_partition_of_fp32_groups
    masters[0] = masters[0].repeat(2)
    trainer.check()


def fsdp2_no_average(session, trainer, meters):
    """Replicas of a sharded model keep their own gradients."""
    from torch.distributed.fsdp import FSDPModule

    for module in trainer.module.modules():
        if isinstance(module, FSDPModule):
            module._get_fsdp_state()._fsdp_param_group.mesh_info.replicate_process_group = session.mesh.get_group(
                "tensor"
            )


def fsdp1_no_average(session, trainer, meters):
    """Each replica of a flat shard sums its gradients over itself alone."""
    for unit in trainer._units():
        unit._inter_node_pg = session.mesh.get_group("tensor")


def divided_part_drifts(session, trainer, meters):
    """A part of a divided matrix is changed in the last replica."""
    import torch

    if session.rank == session.world_size - 1:
        with torch.no_grad():
            next(iter(trainer._cut().values())).mul_(1.5)


def ties_not_reduced(session, trainer, meters):
    """DeepSpeed's first and last stage keep their own gradients of the weight that they share."""
    trainer.model.get_tied_weights_and_groups = list


def experts_keep_their_tokens(session, trainer, meters):
    """The experts of the first layer get no tokens of other ranks, and the engine is asked again."""
    next(module for module in trainer.model.modules() if "forward" in vars(module)).__dict__.pop("forward")
    trainer.check()


def experts_whole(session, trainer, meters):
    """All experts of the first layer become whole on every rank, and the engine is asked again."""
    import torch

    experts = trainer.model.model.layers[0].mlp.experts
    experts.down_proj = torch.nn.Parameter(experts.down_proj.full_tensor().detach())
    trainer.check()


def experts_sum_gradients(session, trainer, meters):
    """An expert's gradient is the sum over the ranks instead of the mean: it is not divided."""
    from perfsuite.rank.norms import is_sharded, local

    reduce = trainer.reduce_gradients

    def summed():
        reduce()
        for parameter in trainer.trainable():
            if is_sharded(parameter, "shards") and parameter.grad is not None:
                local(parameter.grad).mul_(session.layout.shards)

    trainer.reduce_gradients = summed


def heads_not_exchanged(session, trainer, meters):
    """DeepSpeed's module attends with all heads to a rank's own tokens."""
    trainer.exchange.forward = trainer.whole


def megatron_stage_lost(session, trainer, meters):
    """A stage of Megatron loses its last layer, and the engine is asked again what it is."""
    layers = trainer.stages[0].decoder.layers
    del layers[-1]
    trainer.check()


def megatron_whole_optimizer(session, trainer, meters):
    """Megatron's distributed optimizer steps its part twice, as much as it would whole; the engine is asked again."""
    (own,) = trainer.optimizer.chained_optimizers
    group = own.optimizer.param_groups[0]
    group["params"] = group["params"] * 2
    trainer.check()


def megatron_norms_apart(session, trainer, meters):
    """Ranks that share sequences do not sum the gradients of norms and of biases."""
    module: Any = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    module._allreduce_non_tensor_model_parallel_grads = lambda *arguments, **keywords: None


def megatron_norm_unmarked(session, trainer, meters):
    """A norm is torch's own, whose gradients Megatron does not sum; the engine is asked again."""
    trainer.stages[0].decoder.layers[0].input_layernorm.weight.sequence_parallel = False
    trainer.check()


def default_buckets(session, trainer, meters):
    """fairscale's ShardedDataParallel reduces in buckets, as without perfsuite's option."""
    trainer.module._buffer_max_size = sum(parameter.numel() for parameter in trainer.model.parameters())
    trainer.module._use_buckets = True


def fairscale_no_reduction(session, trainer, meters):
    """Every micro-batch counts as one before the last, after which ranks reduce; FSDP sums over one rank alone."""
    trainer.module._should_accumulate_grads = True
    if hasattr(trainer.module, "_reducer"):
        from fairscale.internal import reduce_scatter_bucketer

        def keep(self, chunks, group, callback_fn=None):
            callback_fn(chunks[session.rank])

        reduce_scatter_bucketer.ReduceScatterBucketer.reduce_scatter_async = keep


def fairscale_steps_all(session, trainer, meters):
    """OSS steps every parameter on every rank, and the engine is asked again what it is."""
    inner = trainer.optimizer.optim
    inner.param_groups[0]["params"] = trainer.trainable()
    trainer.check()


def other_weights(session, trainer, meters):
    """ONNX Runtime starts again with one matrix doubled, and is asked again what it is."""
    import numpy
    import onnx
    import torch

    from perfsuite.rank.batches import make_batch

    path = session.scratch / "model.onnx"
    model = onnx.load(path)
    matrix = next(one for one in model.graph.initializer if one.name.endswith("h.0.mlp.c_fc.weight"))
    changed = onnx.numpy_helper.to_array(matrix) * numpy.float32(2)
    matrix.CopyFrom(onnx.numpy_helper.from_array(changed, matrix.name))
    onnx.save(model, path)
    inputs = make_batch(session, 0)[0].named
    (logits,) = trainer.onnx.run(["logits"], {name: tensor.numpy() for name, tensor in inputs.items()})
    trainer.start(path, inputs, torch.from_numpy(logits))
    trainer.check()
