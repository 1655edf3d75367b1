"""The shape of a model, from the names that configs of transformers have for its dimensions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.models._sizes import families
from perfsuite.errors import FileError, Refused
from perfsuite.features.predict.architecture import architecture_of
from perfsuite.features.predict.time.shape import Experts, Latent, LayerStack, Shape
from perfsuite.features.predict.time.shape_built import shape_of_architecture

NORMED = ("Qwen3", "Gemma3")
FAMILIES = {*(path.stem for path in families()), "bloom"}


def shape_of(model: Model) -> Shape:
    """The shape of a model: of perfsuite's families by their configs' names, of others as transformers builds them.

    Raises Refused if there is no closed form, or if transformers does not build it.
    """
    if model.family in FAMILIES or not model.config:
        try:
            shape = shape_of_config(model.config)
        except KeyError as missing:
            lacks = f"its config has no {missing.args[0]}"
            raise Refused(f"{model.name} has no closed form of its time: {lacks}.") from None
    else:
        config = {**model.config, "architectures": [model.model_class]}
        try:
            shape = shape_of_architecture(model.name, architecture_of(model.name, config))
        except FileError as error:
            raise Refused(str(error)) from None
    shape = with_norms(shape, model.model_class)
    return replace(shape, classifies=shape.classifies or model.task == "sequence_classification")


def with_norms(shape: Shape, model_class: str) -> Shape:
    """The shape of a class of transformers, which may have norms of queries and keys: no config says so."""
    if not model_class.startswith(NORMED):
        return shape
    return replace(shape, stacks=tuple(replace(stack, normed=True) for stack in shape.stacks))


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """The shape that a config says. Raises KeyError with the name of a dimension that is missing."""
    if "d_kv" in config:
        return _t5(config)
    layers = _first(config, "num_hidden_layers", "n_layer")
    hidden = _first(config, "hidden_size", "n_embd")
    heads = _first(config, "num_attention_heads", "n_head")
    inner = config.get("intermediate_size") or config.get("n_inner") or 4 * hidden
    experts, latent = _experts(config), _latent(config)
    dense = LayerStack(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or hidden // heads,
        feed_forward=inner,
        gated="intermediate_size" in config and "num_key_value_heads" in config,
        latent=latent,
        window=(config.get("sliding_window") or 0) if "layer_types" in config else 0,
    )
    stacks: tuple[LayerStack, ...] = (dense,)
    if experts:
        first = config.get("first_k_dense_replace", 0)
        stacks = (replace(dense, layers=first),) if first else ()
        stacks += (replace(dense, layers=layers - first, experts=experts),)
    return Shape(
        stacks=stacks,
        vocabulary=_first(config, "vocab_size"),
        tied=config.get("tie_word_embeddings", True),
        positions=config.get("n_positions", 0),
        extra=config.get("num_nextn_predict_layers", 0) or 0,
    )


def _experts(config: Mapping[str, Any]) -> Experts | None:
    """The experts of a config; None if it has none."""
    count = next(
        (config[name] for name in ("n_routed_experts", "num_experts", "num_local_experts") if name in config), 0
    )
    if not count:
        return None
    width = _first(config, "moe_intermediate_size", "intermediate_size")
    shared = config.get("shared_expert_intermediate_size") or width * (config.get("n_shared_experts") or 0)
    chosen = _first(config, "num_experts_per_tok")
    nodes = (config.get("topk_group") or 0) if config.get("n_group", 2) > 1 else 0  # one group is no limit
    biased = bool(config.get("experts_biased"))
    return Experts(count=count, chosen=chosen, width=width, shared=shared, nodes=nodes, biased=biased)


def _latent(config: Mapping[str, Any]) -> Latent | None:
    """The latent attention of a config; None if its attention is the usual one."""
    if "kv_lora_rank" not in config:
        return None
    return Latent(
        query=config.get("q_lora_rank") or 0,
        pair=config["kv_lora_rank"],
        plain=_first(config, "qk_nope_head_dim"),
        rotary=_first(config, "qk_rope_head_dim"),
        value=_first(config, "v_head_dim"),
    )


def _t5(config: Mapping[str, Any]) -> Shape:
    """An encoder and a decoder of as many layers; every head has the width ``d_kv``."""
    stacks = tuple(
        LayerStack(
            layers=config["num_layers"],
            hidden=config["d_model"],
            heads=config["num_heads"],
            kv_heads=config["num_heads"],
            head_width=config["d_kv"],
            feed_forward=config["d_ff"],
            gated="gated" in config.get("feed_forward_proj", "relu"),
            causal=target,
            source_hidden=config["d_model"] if target else 0,
            target=target,
        )
        for target in (False, True)
    )
    return Shape(stacks=stacks, vocabulary=config["vocab_size"], tied=config.get("tie_word_embeddings", True))


def _first(config: Mapping[str, Any], *names: str) -> int:
    """The first of the names that the config has."""
    for name in names:
        if name in config:
            return int(config[name])
    raise KeyError(" or ".join(names))
