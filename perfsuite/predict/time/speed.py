"""From the seconds of a step to tokens per second, MFU and HFU."""

from typing import Any

from perfsuite.predict.time.setup import Setup
from perfsuite.predict.time.shape import Shape


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
        again = {"selective": core, "operators": products / 2, "full": (core + products) * setup.recompute_share}
        flops += stack.layers * again[setup.recompute]
    return flops * setup.samples


def speed(shape: Shape, setup: Setup, device_flops: float, seconds: float) -> dict[str, Any]:
    """The fields of a record: tokens per second of all ranks, MFU and HFU of devices with that peak in FLOP/s."""
    flops = shape.model_flops(setup.sequence, setup.target) * setup.samples
    peak = device_flops * setup.ranks * seconds
    return {
        "predicted_tokens_per_second": setup.samples * (setup.sequence + setup.target) / seconds,
        "predicted_mfu": flops / peak,
        "predicted_hfu": (flops + recomputed_flops(shape, setup)) / peak,
    }
