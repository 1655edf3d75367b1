"""The closed forms of the model state: the usual estimate by hand, for comparison with a trace.

ZeRO's table (arXiv 1910.02054, section 3.1): 2Ψ of parameters and 2Ψ of gradients in half precision and KΨ of
optimizer state, K = 12 with Adam (master parameters, two moments). torch's autocast keeps parameters and gradients in
fp32 instead: 4Ψ + 4Ψ + 8Ψ. No closed form of activations holds for every model.
"""

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import HALF_PRECISION, Layout
from perfsuite.errors import Refused
from perfsuite.features.predict.time.shape_config import shape_of

STATE_BYTES = {  # of an optimizer per parameter; 8-bit states without their block scales
    "adamw": 8.0, "adamw_loop": 8.0, "adamw_foreach": 8.0, "adamw_fused": 8.0, "cpu_adam": 8.0, "sgd": 0.0,
    "sgd_momentum": 4.0, "adamw8bit": 2.0, "adamw8bit_ao": 2.0, "adamw4bit_ao": 1.0, "adafactor": 0.0, "muon": 8.0,
    "schedule_free": 8.0, "paged_adamw": 8.0, "paged_adamw8bit": 2.0,
}  # fmt: skip
SAVED_BYTES = {"muon": 4.0}  # for each element of a layer's matrix, which has one moment instead of two

# Of frozen matrices, per element, with the scales of its blocks: 4 bits, 8 for each 64 elements, and 32 for each 256
# of those (arXiv 2305.14314, section 3), or 32 for each 64; 8 bits, and 32 for a row.
FROZEN_BYTES = {"qlora": (4 + 8 / 64 + 32 / (64 * 256)) / 8, "plain_scales": (4 + 32 / 64) / 8, "lora_int8": 1.0}
TRAINED = "trained part"  # the slot of techniques that freeze parameters
OFFLOADED = {  # what leaves the device, by the field of the recipe that moves it
    "offload_optimizer": {"optimizer_state", "master_parameters", "gradients"},
    "offload_parameters": {"parameters"},
    "paged": {"optimizer_state"},
}


def model_state(cell: Cell, layout: Layout) -> dict[str, int]:
    """Bytes per rank of parameters, master parameters, gradients and optimizer state, by precision and shard, without
    offloaded state; empty for a model that does not say its number of parameters.

    Exact if everything is sharded evenly, except for DeepSpeed's ZeRO in fp32, which keeps master parameters that fp32
    does not need. State without a closed form is left out: with LoRA all but frozen parameters, since adapters depend
    on the model's layers, and the state of an optimizer that this file does not know.
    """
    techniques = [choice.technique for choice in cell.strategy.choices]
    names = {technique.name for technique in techniques}
    if not cell.model.parameters:
        return {}
    engine, pure = cell.strategy.engine, "pure_bf16" in names
    half = bool(names & HALF_PRECISION)
    kept_half = pure or (half and engine.casts)
    count = cell.model.parameters / (layout.pipeline * layout.tensor)
    ranks = layout.shards if layout.shards > 1 else layout.data_ranks
    if engine.dimension == "tensor":  # its shards are the tensor-parallel ranks; replicas keep everything
        ranks = 1
    share = {what: (1 / ranks if what in engine.shards else 1) for what in ("parameters", "gradients", "optimizer")}
    element = 2 if kept_half else 4
    sized = {
        "parameters": element * count * share["parameters"],
        "gradients": (4 if engine.widens else element) * count * share["gradients"],
    }
    for choice in cell.strategy.choices:
        if choice.technique.parameter == "second_partition" and choice.number:
            sized["parameters"] += element * count / choice.number
    for name in names & STATE_BYTES.keys():  # at most one optimizer
        matrices = _matrices(cell) if name in SAVED_BYTES else 0
        if matrices is not None:
            kept = STATE_BYTES[name] - SAVED_BYTES.get(name, 0) * matrices / cell.model.parameters
            sized["optimizer_state"] = kept * (0.5 if pure else 1) * count * share["optimizer"]
    if kept_half and not pure:
        sized["master_parameters"] = 4 * count * share["optimizer"]
    if any(technique.slot == TRAINED and not technique.default for technique in techniques):
        sized = {"parameters": _frozen(cell, names, element if kept_half else 4) * share["parameters"]}
    offloaded = {part for technique in techniques for part in technique.sets if technique.sets[part]}
    for part in offloaded & OFFLOADED.keys():
        here = OFFLOADED[part] & sized.keys()
        sized |= dict.fromkeys(here if "gradients" in engine.shards else here - {"gradients"}, 0)
    return {name: round(size) for name, size in sized.items()}


def _frozen(cell: Cell, names: set[str], element: int) -> float:
    """The bytes of frozen parameters; what is not in few bits has ``element`` bytes, or the dtype of the arithmetic."""
    count = cell.model.parameters / (cell.layout.pipeline * cell.layout.tensor)
    if few := names & FROZEN_BYTES.keys():
        matrices = _matrices(cell, experts="qlora" in names) or 0
        return min(FROZEN_BYTES[one] for one in few - {"qlora"} or few) * matrices + element * (count - matrices)
    halved = names & HALF_PRECISION and "frozen_fp32" not in names
    return (2 if halved else element) * count


def _matrices(cell: Cell, experts: bool = False) -> int | None:
    """The elements of the layers' matrices, if asked with those of experts, which are stacked; None if the config does
    not say it.
    """
    try:
        stacks = shape_of(cell.model).stacks
    except Refused:
        return None
    return sum(
        stack.layers * (stack.dense_parameters + (stack.expert_parameters if experts else 0)) for stack in stacks
    )
