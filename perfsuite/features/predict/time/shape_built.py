"""The shape of a model that transformers built, whose layers are read from its modules."""

import dataclasses

from perfsuite.errors import Refused
from perfsuite.features.predict.architecture import SCRIPT, Architecture, LayerKind
from perfsuite.features.predict.time.shape import Experts, Latent, LayerStack, Shape


def shape_of_architecture(name: str, found: Architecture) -> Shape:
    """The shape, whose parameters are those that were built, to the unit, and the later layers of the config.

    Raises Refused, with the name of the layer, for a model without a closed form.
    """
    if found.no_form:
        way_out = "`perfsuite memory` traces it." if found.task else SCRIPT
        raise Refused(f"{name} has no closed form: {found.no_form}. {way_out}")
    small = sum(layer.count * layer.small for layer in found.layers)
    return Shape(
        stacks=tuple(_stack(name, layer, found) for layer in found.layers),
        vocabulary=found.vocabulary,
        tied=found.tied,
        classifies=not found.head,
        extra=found.later,
        beside=small + sum(found.outside.values()),
    )


def _stack(name: str, kind: LayerKind, found: Architecture) -> LayerStack:
    """The layers of a kind. What attention and feed-forward do not explain of its matrices are ``others``."""
    experts = None
    if kind.experts:
        wide = {"width": kind.expert_width, "shared": kind.shared, "nodes": kind.nodes, "hidden": kind.expert_hidden}
        experts = Experts(count=kind.experts, chosen=kind.chosen, biased=kind.biased, **wide)
    latent = None
    if kind.latent:
        query, pair, plain, rotary, value = kind.latent
        latent = Latent(query=query, pair=pair, plain=plain, rotary=rotary, value=value)
    reads = found.encodes and not kind.encoder
    stack = LayerStack(
        layers=kind.count,
        hidden=found.hidden,
        heads=kind.heads,
        kv_heads=kind.kv_heads,
        head_width=kind.head_width,
        feed_forward=kind.feed_forward,
        gated=kind.gated,
        causal=found.causal and not kind.encoder,
        source_hidden=found.hidden if kind.cross else 0,
        target=reads,
        experts=experts,
        latent=latent,
        window=kind.window,
        windowed=kind.windowed / kind.count if kind.window else LayerStack.windowed,
        normed=kind.normed,
        state=kind.state,
    )
    others = kind.matrices - stack.dense_parameters
    if others < 0 or stack.expert_parameters != kind.routed:
        lacks = f"{kind.matrices + kind.routed:,} elements of matrices, and the closed form {stack.layer_parameters:,}"
        raise Refused(f"{name} has no closed form: {kind.where} ({', '.join(kind.classes)}) has {lacks}.")
    return dataclasses.replace(stack, others=others)
