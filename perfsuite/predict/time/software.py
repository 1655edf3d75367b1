"""What a training software does: the one place that says so, for the planner and for the judged tables.

A Software makes Setups. What it always does are fields of its own; what a user may switch are ``options.OPTIONS``,
which the command line takes as ``--set NAME=VALUE`` and the judged tables give by the same names.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfsuite.catalog.definitions import Device
from perfsuite.errors import UsageError
from perfsuite.predict.time import costs
from perfsuite.predict.time.options import option
from perfsuite.predict.time.precision import PRECISIONS
from perfsuite.predict.time.recipes import MEGATRON_BRIDGE, RELEASES, Recipe, check_release
from perfsuite.predict.time.setup import Setup

FUSED_FROM = 8.0  # compute capability: older devices have fused attention in fp16 alone
OTHER = 9.0  # as which a device counts that is not NVIDIA's


@dataclass(frozen=True, kw_only=True)
class Software:
    """``does`` are fields of every Setup. ``has`` are the dimensions and techniques that a layout of it may have:
    tensor, pipeline, interleave, context, experts, zero1, zero2, zero3, hybrid, offload, and kinds of recomputation.

    ``says`` describes it in a few words. ``source`` is where its behaviour can be read.
    """

    name: str
    says: str
    source: str
    has: frozenset[str]
    does: Mapping[str, Any] = field(default_factory=dict)
    recipes: tuple[Recipe, ...] = ()  # what its own recipes set besides, by release and kind of step
    cudnn_from: float = math.inf  # compute capability from which on it takes cuDNN's attention or FlashAttention-3
    precisions: tuple[str, ...] = ("bf16", "fp16")

    def attention(self, device: Device) -> str:
        """The kernel that it takes on a device: a key of Setup.attention."""
        capability = device.compute_capability or OTHER
        if "attention" in self.does:
            return str(self.does["attention"])
        if capability < FUSED_FROM:
            return "unfused"
        return "flash3" if capability >= self.cudnn_from else "flash"

    def setup(self, device: Device, options: Mapping[str, str], routed: bool = False, **given: Any) -> Setup:
        """A Setup of this software on a device. ``given`` are the layout, lengths and what a layout's name says. The
        model has experts if it is ``routed``.

        Raises UsageError for an option that is unknown or has another kind of value.
        """
        if "release" in options and not self.recipes:
            raise UsageError(f"--set release: {self.name} has no recipes by release.")
        fields: dict[str, Any] = {"attention": self.attention(device), "gradient_bytes": 4} | dict(self.does)
        fields["precision"] = half(device)
        if fields["precision"] == "fp16":
            fields["gradient_bytes"] = 2  # bf16 is reduced in fp32
        kind = (given.get("precision", fields["precision"]), routed, device.compute_capability or 0.0)
        release = check_release(options.get("release", RELEASES[-1]))
        for recipe in self.recipes:
            fields |= recipe.does if recipe.applies(*kind, release) else {}
        fields |= given
        fields["sequence_parallel"] = bool(fields.get("sequence_parallel")) and given["layout"].tensor > 1
        for name, value in options.items():
            fields |= option(name).read(value, fields)
        return Setup(**fields)


RECOMPUTED = frozenset({"ckpt", "ckpt_selective", "ckpt_pointwise"})
MEGATRON = frozenset({"tensor", "pipeline", "interleave", "zero1"}) | RECOMPUTED
FSDP = frozenset({"zero3", "hybrid", "ckpt"})
OF_2022 = {"attention": "unfused", "precision": "fp16", "gradient_bytes": 2, "dropout": True}
SOFTWARE = {
    one.name: one
    for one in (
        Software(
            name="megatron_core",
            says="Megatron-core with Transformer Engine: fused pointwise kernels, messages overlapped",
            source="core/ of NVIDIA/Megatron-LM, and the performance recipes of NVIDIA-NeMo/Megatron-Bridge",
            has=MEGATRON | {"context", "experts"},
            does={
                "overlapped": True,
                "sequence_parallel": True,
                "tensor_pipelined": True,  # tp_comm_overlap
                "sends_overlapped": True,  # overlap_p2p_comm, with several chunks
                "parameter_bytes_moved": 0.0,  # gradient_accumulation_fusion: products add to the sums
                "optimizer_bytes": costs.MEGATRON_ADAM + costs.MEGATRON_CLIP,
            },
            recipes=MEGATRON_BRIDGE,
            cudnn_from=8.0,
            precisions=("bf16", "fp16", "fp8", "mxfp8", "nvfp4"),
        ),
        Software(
            name="megatron",
            says="Megatron-LM of 2022: separate attention kernels, unfused sums",
            source="arXiv 2205.05198",
            has=MEGATRON - {"ckpt_pointwise"},
            does={
                "overlapped": True,
                "sequence_parallel": True,
                **OF_2022,
            },
            precisions=("fp16",),
        ),
        Software(
            name="megatron_deepspeed",
            says="Megatron-DeepSpeed: nothing overlapped, separate attention kernels",
            source="VIA-Research/vTrain, config/validation",
            has=frozenset({"tensor", "pipeline", "zero1", "ckpt"}),
            does={
                "tensor_overlapped": False,
                "wide_launch": 1.4,  # vTrain's host-bound rows: 4.0 to 5.1 ms a layer at width 8, 3.5 at narrower ones
                **OF_2022,
            },
            precisions=("fp16",),
        ),
        Software(
            name="nanotron",
            says="nanotron: 1F1B without chunks, stages balanced by their cost",
            source="huggingface/nanotron at 2411b022a7",
            has=frozenset({"tensor", "pipeline", "zero1"}),
            does={"balanced": True, "sequence_parallel": True, "overlapped": True, "cross_entropy": "nanotron"},
            precisions=("bf16",),
        ),
        Software(
            name="composer_fsdp",
            says="Composer's FSDP of llm-foundry: parameters are gathered late in backward",
            source="mosaicml/llm-foundry at 8c8dd48f72",
            has=FSDP,
            does={"prefetched": False, "early_stop": True, "overlapped": True},
            precisions=("bf16",),
        ),
        Software(
            name="fsdp",
            says="PyTorch's FSDP without compilation",
            source="foundation-model-stack/fms-fsdp at 0d31998300",
            has=FSDP,
            does={"early_stop": True, "overlapped": True, "gradient_bytes": 2},
        ),
        Software(
            name="torchtitan",
            says="torchtitan: FSDP2, compiled layers",
            source="pytorch/torchtitan at b5bcd76c66, torchtitan/models/llama3",
            has=FSDP | {"tensor", "context", "ckpt_operators"},
            does={
                "early_stop": True,
                "overlapped": True,
                "sequence_parallel": True,
                "tensor_overlapped": False,
                "embedding_gathered": True,
                "cross_entropy": "compiled",
                "optimizer_bytes": costs.FUSED_ADAM + costs.MEGATRON_CLIP,
            },
            precisions=("bf16", "fp8", "mxfp8"),
        ),
        Software(
            name="automodel",
            says="NeMo Automodel: FSDP2, Transformer Engine's layers, experts by DeepEP",
            source="NVIDIA-NeMo/Automodel at 36044ad3d1, examples/llm_benchmark",
            has=FSDP | {"pipeline", "interleave", "context", "experts"},
            does={"early_stop": True, "overlapped": True, "embedding_gathered": True, "dispatch": "fused"},
            cudnn_from=8.0,
            precisions=("bf16",),
        ),
        Software(
            name="deepspeed",
            says="transformers with DeepSpeed's ZeRO: eager pointwise kernels",
            source="perfsuite/predict/time/cell_steps.py, which says the same of cells",
            has=frozenset({"zero1", "zero2", "zero3", "offload", "ckpt"}),
            does={
                "scattered": False,
                "tensor_overlapped": False,
                "gradient_bytes": 2,
                "early_stop": True,
                "embedding_gathered": True,
                "cross_entropy": "transformers",
                "optimizer_bytes": costs.FOREACH_ADAM + 34.0,
                # DeepSpeed gathers parameters one by one and in turns: between nodes its steps need this share.
                "gather_share": 1 / 7,
            },
            cudnn_from=9.0,
        ),
        Software(
            name="fsdp2",
            says="transformers with FSDP2: eager pointwise kernels",
            source="perfsuite/predict/time/cell_steps.py, which says the same of cells",
            has=FSDP,
            does={
                "overlapped": True,
                "early_stop": True,
                "embedding_gathered": True,
                "cross_entropy": "transformers",
                "parameter_bytes_moved": 14.0,
                "optimizer_bytes": costs.FOREACH_ADAM,
            },
            cudnn_from=9.0,
        ),
    )
}


def half(device: Device) -> str:
    """The half precision that people train in on a device."""
    return "bf16" if "bf16" in device.dense_flops else "fp16"


def peak_name(precision: str) -> str:
    """The key of ``Device.dense_flops`` for products in a precision."""
    return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(precision, precision)


def software(name: str) -> Software:
    """A software by its name. Raises UsageError for an unknown one."""
    if name not in SOFTWARE:
        raise UsageError(f"--stack is {name!r}: known are {', '.join(SOFTWARE)}.")
    return SOFTWARE[name]


def check_precision(one: Software, precision: str, device: Device) -> None:
    """Raises UsageError for a precision that the software or the device does not have."""
    if precision not in PRECISIONS:
        raise UsageError(f"--precision is {precision!r}: known are {', '.join(PRECISIONS)}.")
    if precision not in one.precisions:
        raise UsageError(f"{one.name} does not train in {precision}: it has {', '.join(one.precisions)}.")
    key = peak_name(precision)
    if key not in device.dense_flops:
        raise UsageError(f"{device.name} has no {precision} products: it has {', '.join(device.dense_flops)}.")
