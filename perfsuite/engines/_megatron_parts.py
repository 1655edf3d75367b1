"""What a rank of Megatron consists of: the config, the stages with the catalog's weights, and the optimizer."""

import functools
from collections.abc import Iterator
from typing import Any

from perfsuite.engines._megatron_weights import Weight, fill, padded, weights
from perfsuite.rank.session import Session

RECOMPUTED: dict[str, dict[str, Any]] = {
    "ckpt": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    "ckpt_selective": {"recompute_granularity": "selective"},  # attention without its projections
}
LOSS_SCALE = 2.0**16  # as torch's GradScaler begins; Megatron begins with 2^32, which takes many steps to fall


def import_once() -> None:
    """Import what each rank with Megatron would import."""
    import megatron.core.distributed
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.models.gpt.gpt_model
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel  # noqa: F401


def join_groups(session: Session, per_rank: int) -> Any:
    """Form Megatron's process groups and seed its generators; returns the module that knows the groups."""
    from megatron.core import parallel_state, tensor_parallel

    layout = session.layout
    if not parallel_state.model_parallel_is_initialized():  # it is when an update is compared
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=layout.tensor,
            pipeline_model_parallel_size=layout.pipeline,
            virtual_pipeline_model_parallel_size=_virtual(per_rank),
            create_gloo_process_groups=False,
        )
    tensor_parallel.model_parallel_cuda_manual_seed(session.job.seed, force_reset_rng=True)
    return parallel_state


def config_of(session: Session, model: Any, per_rank: int) -> Any:
    """Megatron's config of transformers' model, with the session's layout and techniques."""
    import torch
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.transformer.transformer_config import TransformerConfig

    own, layer, layout, dtype = model.config, model.transformer.h[0], session.layout, session.compute_dtype
    techniques = {choice.technique.name for choice in session.strategy.choices}
    config = TransformerConfig(
        num_layers=own.n_layer,
        hidden_size=own.n_embd,
        num_attention_heads=own.n_head,
        ffn_hidden_size=own.n_inner or 4 * own.n_embd,
        layernorm_epsilon=own.layer_norm_epsilon,
        activation_func=functools.partial(torch.nn.functional.gelu, approximate="tanh"),
        hidden_dropout=layer.mlp.dropout.p,  # of the modules: nodrop has changed them
        attention_dropout=layer.attn.attn_dropout.p,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=_virtual(per_rank),
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        fp16=dtype == torch.float16,
        sequence_parallel="sp" in techniques,
        # Fusions need kernels of apex or torch's compiler.
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        **next((RECOMPUTED[name] for name in techniques & RECOMPUTED.keys()), {}),
    )
    config.finalize_model_grads_func = finalize_model_grads
    return config


def stages_of(session: Session, model: Any, config: Any, per_rank: int) -> tuple[list[Any], dict[str, int]]:
    """This rank's stages as Megatron's GPT models, with the weights of transformers' model; and the elements of each
    of these as a whole, with padding.
    """
    from megatron.core import parallel_state as groups
    from megatron.core.models.gpt.gpt_model import GPTModel

    parameters = dict(model.named_parameters(remove_duplicate=False))
    stages: list[Any] = []
    elements: dict[str, int] = {}
    vocabulary = model.config.vocab_size
    for number in range(per_rank):
        place: dict[str, Any] = {"vp_stage": number} if per_rank > 1 else {}
        with session.device:
            stage: Any = GPTModel(
                config=config,
                transformer_layer_spec=_layers(config, **place),
                vocab_size=padded(vocabulary, session.layout.tensor),
                max_sequence_length=model.config.n_positions,
                pre_process=groups.is_pipeline_first_stage(ignore_virtual=False, **place),
                post_process=groups.is_pipeline_last_stage(ignore_virtual=False, **place),
                share_embeddings_and_output_weights=model.config.tie_word_embeddings,
                **place,
            )
        for weight in weights_of(stage, vocabulary):
            elements[weight.name] = fill(weight, parameters[weight.name], groups.get_tensor_model_parallel_rank())
        stages.append(stage)
    return stages, elements


def _layers(config: Any, **place: Any) -> Any:
    """Megatron's layers. Its own norm without apex and Transformer Engine is torch's, which it refuses if ranks share
    sequences, since nobody would sum the gradients of its parameters: then they are marked.
    """
    import torch
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build

    layer = get_gpt_layer_local_spec()
    if not config.sequence_parallel:
        return layer

    class NormOfTokens(torch.nn.LayerNorm):
        def __init__(self, config: Any, hidden_size: int, eps: float) -> None:
            super().__init__(hidden_size, eps)
            for parameter in self.parameters():
                parameter.sequence_parallel = True  # type: ignore[attr-defined]

    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = NormOfTokens
    count = get_num_layers_to_build(config, **place)
    return TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=NormOfTokens)


def is_of_tokens(parameter: Any) -> bool:
    """Whether a rank's gradient of it is of its own tokens alone, so that Megatron sums those of all."""
    return bool(getattr(parameter, "sequence_parallel", False))


def let_go(model: Any) -> None:
    """Free the parameters of a model that others still hold."""
    for module in model.modules():
        for name in [name for name, _ in module.named_parameters(recurse=False)]:
            delattr(module, name)


def weights_of(stage: Any, vocabulary: int) -> Iterator[Weight]:
    """The stage's parameters with their names in the whole model."""
    first = stage.decoder.layers[0].layer_number - 1  # Megatron counts from 1, over all stages
    return weights(stage, first, stage.config.num_attention_heads, vocabulary)


def wrapped(stage: Any, distributed: bool) -> Any:
    """The stage in Megatron's DistributedDataParallel, which keeps gradients in fp32."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.module import Float16Module

    chunk = Float16Module(stage.config, stage) if stage.config.bf16 or stage.config.fp16 else stage
    config = DistributedDataParallelConfig(
        use_distributed_optimizer=distributed, grad_reduce_in_fp32=True, overlap_grad_reduce=False
    )
    return DistributedDataParallel(stage.config, config, chunk)


def optimizer_of(session: Session, chunks: list[Any], distributed: bool) -> Any:
    """Megatron's own Adam or SGD, with the numbers of the recipe's optimizer."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    recipe, model = session.recipe, chunks[0].config
    example = recipe.example().param_groups[0]
    beta1, beta2 = example.get("betas", (0.9, 0.999))
    config = OptimizerConfig(
        optimizer="adam" if "betas" in example else "sgd",
        lr=recipe.learning_rate,
        weight_decay=example["weight_decay"],
        adam_beta1=beta1,
        adam_beta2=beta2,
        adam_eps=example.get("eps", 1e-8),
        sgd_momentum=example.get("momentum", 0.0),
        bf16=model.bf16,
        fp16=model.fp16,
        initial_loss_scale=LOSS_SCALE,
        params_dtype=model.params_dtype,
        use_distributed_optimizer=distributed,
        clip_grad=recipe.clip or 0.0,
    )
    # Without overrides biases and norms decay too, as they do in torch.
    optimizer = get_megatron_optimizer(config, chunks, config_overrides={}, use_gloo_process_groups=False)
    model.grad_scale_func = optimizer.scale_loss
    return optimizer


def _virtual(per_rank: int) -> int | None:
    """The number of stages per rank, as Megatron is told it."""
    return per_rank if per_rank > 1 else None
