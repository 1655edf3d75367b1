"""From the seconds of a step to tokens per second, MFU and HFU."""

from typing import Any

from perfsuite.features.predict.time.regimes import interval
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.step import Breakdown


def recomputed_flops(shape: Shape, setup: Setup) -> float:
    """FLOPs of a step that are done twice: all forward FLOPs of layers, those of attention alone, or of half of the
    products.
    """
    if setup.recompute in ("none", "pointwise"):
        return 0.0
    flops = 0.0
    for stack in shape.stacks:
        own = setup.target if stack.target else setup.sequence
        seen = stack.seen(own) + (setup.sequence if stack.source_hidden else 0)
        core, products = 4.0 * stack.heads * stack.score_width * own * seen, 2.0 * stack.active_parameters * own
        forward = 2.0 * (stack.active_parameters - stack.attention_parameters - stack.others) * own
        again = {
            "selective": core,
            "feed_forward": forward,
            "operators": products / 2,
            "full": (core + products) * setup.recompute_share,
        }
        flops += stack.layers * again[setup.recompute]
    return flops * setup.samples


def _frozen_flops(shape: Shape, setup: Setup) -> float:
    """Of a sample's FLOPs those of the gradients of frozen weights, which are not computed: 2 per element and token."""
    if not setup.adapter:
        return 0.0
    layers = sum(stack.layers * stack.active_parameters for stack in shape.stacks)
    return 2.0 * (layers + shape.hidden * shape.vocabulary) * (setup.target or setup.sequence)


def said(shape: Shape, setup: Setup, device_flops: float, found: Breakdown, kind: str) -> dict[str, Any]:
    """What a record says of a predicted step: its seconds, their interval and parts, tokens per second of all ranks,
    MFU and HFU of devices with that peak in FLOP/s. ``kind`` is its regime.
    """
    seconds = found.total
    low, high = interval(seconds, kind)
    flops = (shape.model_flops(setup.sequence, setup.target) - _frozen_flops(shape, setup)) * setup.samples
    peak = device_flops * setup.ranks * seconds
    return {
        "predicted_step_seconds": seconds,
        "low_seconds": low,
        "high_seconds": high,
        "regime": kind,
        "predicted_parts": found.parts(),
        "predicted_tokens_per_second": setup.samples * (setup.sequence + setup.target) / seconds,
        "predicted_mfu": flops / peak,
        "predicted_hfu": (flops + recomputed_flops(shape, setup)) / peak,
    }
