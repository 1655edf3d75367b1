"""A cell as a setup of the closed form, and its predicted step. What the closed form does not say, it says in a word.

The setups describe this package's own engines, which train transformers' layers: DeepSpeed's ZeRO 1 and 2 all-reduce
gradients, FSDP reduces them in fp32, and the tensor parallelism of transformers hides no message. No table with
measured steps of transformers' layers was fitted, so every cell's regime is new.
"""

import dataclasses
from typing import Any, Literal

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Engine, Layout
from perfsuite.errors import Refused
from perfsuite.features.predict.prediction import PredictedTime
from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.regimes import of_cell
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import LayerStack, Shape
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.speed import said
from perfsuite.features.predict.time.step import step
from perfsuite.rank.recipe import recipe_of

ADAPTERS = {"lora": "bf16", "qlora": "nf4"}  # and the format of the frozen weights: a key of adapters.BASES
ADAPTED = {"all_linear": "all", "all_attention": "attention"}  # else peft's choice: queries and values of most models
# Techniques with a known time, beside the defaults of their slots. bf16 and fp16 are asked of the device.
TECHNIQUES = {
    "bf16", "fp16", "dp", "tp", "acc", "adamw_foreach", "adamw_fused", "offload_optimizer", "ckpt", "eager", "sdpa",
    "flash", "clip", "nodrop", "epochs", "accelerate", "hf_trainer", "quickstart", *ADAPTERS, "rank", "all_linear",
    "all_attention",
}  # fmt: skip
UNTIMED_DEFAULTS = frozenset({"fp32"})
DROPOUTS = ("dropout_rate", "resid_pdrop", "hidden_dropout", "attention_dropout")
GPT2_DROPOUT = 0.1  # transformers' default, which a config need not state
FUSED_FROM = 8.0  # compute capability: older devices have fused attention in fp16 alone
# Compute capabilities whose first choice is cuDNN's attention: predict/trace/attention_kernels.py.
CUDNN_GENERATIONS = (9.0, 10.0)
DDP_BUCKET = 25 * 2**20 // 4  # elements
# Bytes per parameter of a shard beside AdamW's, by whether gradients are scattered (stage 3) or not (1 and 2): cast to
# fp32 (6), norm (4 and 4), scaled (8), copied to half precision (6), and checks or one more copy. A trace counts them.
ZERO_ADAM = {False: 34.0, True: 42.0}
# Bytes per parameter in a micro-batch, by engine. Autocast casts parameters to half precision and gradients to fp32 (6
# each); DistributedDataParallel copies these into buckets (8). FSDP2 copies parameters out of what it gathered, twice
# (8), and gradients into what it scatters (6).
MOVED = {
    "single": 12.0, "tp": 12.0, "ddp": 20.0, "fsdp2": 14.0,
    "pp_naive": 12.0, "pp_gpipe": 12.0, "pp_1f1b": 12.0, "pp_interleaved": 12.0,
}  # fmt: skip
ADDED = 12.0  # an fp32 gradient is added to those of the micro-batches before: two reads and a write
UNKNOWN_STACK = ""  # of no fitted table


def time_of(cell: Cell, padded: bool = True) -> PredictedTime:
    """The predicted step of a cell, or a record whose ``untimed`` says in a word what has no closed form. ``padded``:
    its batches have padding, as perfsuite's own do.
    """
    device = cell.hardware.device
    if device is None:
        return PredictedTime(cell=cell.id, untimed="cpu")
    if word := unknown(cell):
        return PredictedTime(cell=cell.id, untimed=word)
    try:
        shape, setup = shape_of(cell.model), setup_of(cell, padded)
        machine, constants = machine_of(device, node=cell.hardware.ranks), constants_of(device, UNKNOWN_STACK)
    except Refused:
        return PredictedTime(cell=cell.id, untimed=device.name if _unknown_device(cell) else cell.model.name)
    found = step(shape, setup, machine, constants)
    kind = of_cell(cell, found.launch / found.total)
    return PredictedTime(cell=cell.id, **said(shape, setup, machine.flops, found, kind))


def setup_of(cell: Cell, padded: bool = True) -> Setup:
    """The setup of a cell whose strategy has a closed form; ``padded`` as in time_of."""
    engine, recipe = cell.strategy.engine, recipe_of(cell.strategy)
    names = {choice.technique.name for choice in cell.strategy.choices}
    capability = (cell.hardware.device and cell.hardware.device.compute_capability) or 0.0
    shape = shape_of(cell.model)
    zero = engine.casts and bool(engine.shards)  # DeepSpeed's, which has copies and norms of its own
    drops = "nodrop" not in names and _drops(cell)
    fused = "eager" not in names and bool(cell.model.attentions - {"eager"})
    fields: dict[str, Any] = {
        "layout": layout_of(cell),
        "sequence": cell.workload.sequence_length,
        "target": cell.workload.target_length or 0,
        "micro_batch": cell.workload.micro_batch,
        "accumulation": recipe.accumulation,
        "interleave": engine.chunks,
        "sharded": engine.shards,
        "scattered": engine.scatters,
        "overlapped": not zero or engine.scatters,
        "tensor_overlapped": False,
        # transformers divides queries, keys, values, gate and rest apart, and autocast's gradients are fp32
        "tensor_gradients": (5 if shape.stacks[-1].gated else 4) / 2,
        "tensor_gradient_bytes": 2 if engine.shards else 4,
        "logits_gathered": layout_of(cell).tensor > 1,
        "embedding_gathered": True,
        "eager": _eager(cell, drops),
        "cross_entropy": "transformers",
        "parameter_bytes_moved": _moved(engine, recipe.accumulation),
        "recompute": "full" if "ckpt" in names else "selective" if "ckpt_selective" in names else "none",
        "early_stop": True,
        "attention": _kernel(capability, recipe.loss_scaling, drops) if fused else "unfused",
        # Padding needs a mask as a tensor. A stage gets the mask from outside, and torch sees no causal one.
        "masked": (padded and recipe.padded) or engine.dimension == "pipeline",
        "precision": "fp16" if recipe.loss_scaling else "bf16",
        "gradient_bytes": 2 if engine.casts and not engine.widens else 4,
        "gradient_messages": gradient_messages(shape, zero, layout_of(cell).data_ranks),
        "layer_messages": _matrices(shape.stacks[-1]) if zero and engine.scatters else 1,
        "persistent": _vectors(shape) if zero and engine.scatters else 0,
        "optimizer_bytes": (costs.FUSED_ADAM if "adamw_fused" in names else costs.FOREACH_ADAM)
        + (ZERO_ADAM[engine.scatters] if zero else 0.0),
        "dropout": drops,
        "adapter": recipe.adapter_rank if names & ADAPTERS.keys() else 0,
        "adapted": next((ADAPTED[name] for name in names if name in ADAPTED), "qkv"),
        "base": next((ADAPTERS[name] for name in names if name in ADAPTERS), "bf16"),
        "offload": recipe.offload_optimizer == "cpu",
        "sequence_parallel": "sp" in names,
        "moment_bytes": costs.MOMENTS_8BIT if "adamw8bit" in names else costs.MOMENTS,
    }
    return Setup(**fields | dict(engine.computes))


def _moved(engine: Engine, accumulation: int) -> float | None:
    """Bytes per parameter in the mean micro-batch; None if they are not counted."""
    if engine.name not in MOVED:
        return None
    added = 0.0 if engine.shards else ADDED * (accumulation - 1) / accumulation
    return MOVED[engine.name] + added


def _kernel(capability: float, scaled: bool, drops: bool) -> Literal["flash", "flash3", "unfused"]:
    """The attention that torch selects without a mask: predict/trace/attention_kernels.py has its rules."""
    if capability in CUDNN_GENERATIONS and not drops:
        return "flash3"
    return "flash" if capability >= FUSED_FROM or scaled else "unfused"


def _eager(cell: Cell, drops: bool) -> tuple[str, str] | None:
    """The layers whose pointwise kernels are counted one by one: a GPT's with its fused gelu, and Llama's."""
    engine, family = cell.strategy.engine, {"megatron": "gpt", "llama": "llama"}.get(cell.model.family)
    half = "parameters" in engine.shards or engine.casts
    return (family, "half" if half else "autocast") if family and not drops else None


def gradient_messages(shape: Shape, zero: bool, ranks: int) -> int:
    """The messages in which gradients are all-reduced: a bucket each, but a larger matrix has one alone.

    DeepSpeed's bucket is hidden² elements, as transformers sets it, and is sent before a matrix that does not fit:
    two messages per matrix. DistributedDataParallel's has 25 MiB of fp32 and is sent with that matrix.
    """
    bucket = shape.hidden**2 if zero else DDP_BUCKET
    matrices = sum(stack.layers * _matrices(stack) for stack in shape.stacks)
    return max(1, min(shape.parameters // bucket, matrices * (2 if zero else 1))) if ranks > 1 else 1


def _matrices(stack: LayerStack) -> int:
    """The matrices of a layer of transformers, each a parameter: a Llama's has seven, a GPT's four."""
    return 7 if stack.gated else 4


def _vectors(shape: Shape) -> int:
    """Norms' weights, and biases where there are some: DeepSpeed keeps such small parameters whole.

    transformers' threshold is 10 · hidden elements (integrations/deepspeed.py). A GPT has biases of four products, too.
    """
    return sum(stack.layers * (2 if stack.gated else 8) for stack in shape.stacks) + 1


def layout_of(cell: Cell) -> Layout:
    """The widths of a cell. ZeRO divides over its replicas: where parameters are divided, these are the shards."""
    found = cell.layout
    if "parameters" in cell.strategy.engine.shards and found.shards == 1:
        return dataclasses.replace(found, replicas=1, shards=found.replicas)
    return found


def unknown(cell: Cell) -> str:
    """The first part of a cell that the closed form does not know; empty if it knows all."""
    engine, device = cell.strategy.engine, cell.hardware.device
    if not engine.timed:
        return engine.name
    for choice in cell.strategy.choices:
        technique = choice.technique
        known = technique.name not in UNTIMED_DEFAULTS if technique.default else technique.name in TECHNIQUES
        if not known:
            return technique.name
        if technique.slot == "precision" and device and technique.name not in device.dense_flops:
            return technique.name
    if engine.dimension == "pipeline" and cell.workload.target_length:
        return engine.name
    return ""


def _unknown_device(cell: Cell) -> bool:
    """Whether it is the device that has no constants."""
    assert cell.hardware.device is not None
    try:
        machine_of(cell.hardware.device)
    except Refused:
        return True
    return False


def _drops(cell: Cell) -> bool:
    """Whether the model has dropout."""
    config = cell.model.config
    given = [config[name] for name in DROPOUTS if name in config]
    return bool(max(given) if given else GPT2_DROPOUT if cell.model.family == "gpt2" else 0.0)
