"""The closed forms of the model state: what everyone computes by hand, beside what a trace finds.

ZeRO's table (arXiv 1910.02054, section 3.1): 2Ψ of parameters and 2Ψ of gradients in half precision and KΨ of
optimizer state, K = 12 with Adam (master parameters, two moments). torch's autocast keeps parameters and gradients in
fp32 instead: 4Ψ + 4Ψ + 8Ψ. Activations have no closed form that holds for every model.
"""

from __future__ import annotations

from perfsuite.catalog.definitions import Layout
from perfsuite.cell import Cell

STATE_BYTES = {  # of an optimizer per parameter; 8-bit states without their block scales
    "adamw": 8.0, "adamw_loop": 8.0, "adamw_foreach": 8.0, "adamw_fused": 8.0, "cpu_adam": 8.0, "sgd": 0.0,
    "sgd_momentum": 4.0, "adamw8bit": 2.0, "adamw8bit_ao": 2.0, "adamw4bit_ao": 1.0, "adafactor": 0.0,
}  # fmt: skip


OFFLOADED = {  # what leaves the device, by the field of a recipe that says so
    "offload_optimizer": {"optimizer_state", "master_parameters", "gradients"},
    "offload_parameters": {"parameters"},
}


def model_state(cell: Cell, layout: Layout) -> dict[str, int]:
    """Bytes per rank of parameters, master parameters, gradients and optimizer state, by precision and shard, without
    what is offloaded to the host.

    Exact where everything is sharded evenly; LoRA is left out, since adapters depend on the model's layers.
    """
    names = {choice.technique.name for choice in cell.strategy.choices}
    engine, pure = cell.strategy.engine, "pure_bf16" in names
    half = bool(names & {"bf16", "fp16", "pure_bf16"})
    kept_half = pure or (half and engine.keeps == "pieces" and engine.preload != ())  # DeepSpeed casts the model
    count = cell.model.parameters / (layout.pipeline * layout.tensor)
    ranks = layout.shards if layout.shards > 1 else layout.data_ranks
    share = {what: (1 / ranks if what in engine.shards else 1) for what in ("parameters", "gradients", "optimizer")}
    element = 2 if kept_half else 4
    sized = {
        "parameters": element * count * share["parameters"],
        "gradients": element * count * share["gradients"],
        "optimizer_state": next(STATE_BYTES[name] for name in names if name in STATE_BYTES)
        * (0.5 if pure else 1)
        * count
        * share["optimizer"],
    }
    if kept_half and not pure:
        sized["master_parameters"] = 4 * count * share["optimizer"]
    offloaded = {
        part for choice in cell.strategy.choices for part in choice.technique.sets if choice.technique.sets[part]
    }
    for part in offloaded & OFFLOADED.keys():
        here = OFFLOADED[part] & sized.keys()
        sized |= dict.fromkeys(here if "gradients" in engine.shards else here - {"gradients"}, 0)
    return {name: round(size) for name, size in sized.items()}
