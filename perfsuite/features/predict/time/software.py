"""What a training software does: software.toml says so, for the planner and for the judged tables.

A Software makes Setups. What it always does are fields of its own; what a user may switch are ``options.OPTIONS``,
which the command line takes as ``--set NAME=VALUE`` and the judged tables give by the same names.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Device
from perfsuite.errors import UsageError
from perfsuite.features.predict.time.options import RELEASES, check_release, option
from perfsuite.features.predict.time.precision import PRECISIONS, weight_bytes
from perfsuite.features.predict.time.setup import Setup

FUSED_FROM = 8.0  # compute capability: older devices have fused attention in fp16 alone
OTHER = 9.0  # as which a device counts that is not NVIDIA's


@dataclass(frozen=True, kw_only=True)
class SoftwareRecipe:
    """Fields of a Setup that a software's own performance recipe gives ``formats`` of products, in the releases from
    ``since`` to ``until``.

    ``experts``: models with experts have it, or those without, or (None) both. ``capability``: from which on.
    """

    does: Mapping[str, Any]
    formats: tuple[str, ...] = ()
    experts: bool | None = None
    capability: float = 0.0
    since: str = RELEASES[0]
    until: str = RELEASES[-1]

    def applies(self, precision: str, experts: bool, capability: float, release: str) -> bool:
        """Whether it is a step's."""
        known = RELEASES.index(self.since) <= RELEASES.index(release) <= RELEASES.index(self.until)
        kind = self.experts in (None, experts) and capability >= self.capability
        return known and kind and (not self.formats or precision in self.formats)


@dataclass(frozen=True)
class KeptTensors:
    """What a software keeps for backward, in bytes per element.

    ``hidden``: of a layer's hidden states, since two norms and two products keep their inputs. ``gathered``: of the
    inputs that tensor-parallel layers gather and keep whole on every rank. ``logits``: of a logit, if that is not what
    its cross entropy holds.

    ``fused``: gate and activation are one kernel, with an expert's weight of a token. ``quantised``: products keep
    their inputs and their weights in their own format.

    ``outer``: shards of a part of the ranks (hybrid) have an optimizer whose state is divided over all.
    ``fp32_shards``: sharded parameters are in fp32 alone, and backward makes gradients anew. ``eager``:
    FSDP2 with pointwise kernels that are apart. ``hosted``: what is not recomputed with feed-forwards is on the host.
    """

    hidden: float = 8.0
    gathered: float = 0.0
    logits: float = 0.0
    fused: bool = False
    quantised: bool = False
    fp32_shards: bool = False
    eager: bool = False
    hosted: bool = False
    outer: bool = False


@dataclass(frozen=True, kw_only=True)
class Software:
    """``does`` are fields of every Setup. ``has`` are the dimensions and techniques that a layout of it may have:
    tensor, pipeline, interleave, context, experts, zero1, zero2, zero3, hybrid, offload, and kinds of recomputation.
    Those of ``asked`` it has too, but no search tries them: no published row says how fast they are.

    ``quantised_bases``: it keeps frozen weights of adapters in 4 or 8 bits, too.

    ``says`` describes it in a few words. ``source`` is where its behaviour can be read.
    """

    name: str
    says: str
    source: str
    has: frozenset[str]
    asked: frozenset[str] = frozenset()
    does: Mapping[str, Any] = field(default_factory=dict)
    recipes: tuple[SoftwareRecipe, ...] = ()  # what its own recipes set besides, by release and kind of step
    cudnn_from: float = math.inf  # compute capability from which on it takes cuDNN's attention or FlashAttention-3
    precisions: tuple[str, ...] = ("bf16", "fp16")
    kept: KeptTensors = KeptTensors()
    quantised_bases: bool = False

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

        Raises UsageError for an option that is unknown, has another kind of value, or needs another one.
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
        if self.kept.quantised:
            gathered = int(fields.get("parameter_bytes", 2))
            fields["weight_bytes"] = weight_bytes(str(fields["precision"]), gathered, kind[2])
        if "base" in options and not fields.get("adapter"):
            raise UsageError("--set base is the format of frozen weights, and all train: add lora=16.")
        if fields.get("base", "bf16") != "bf16" and not self.quantised_bases:
            others = ", ".join(one.name for one in SOFTWARE.values() if one.quantised_bases)
            raise UsageError(f"--set base: {self.name} keeps frozen weights in bf16. {others} have {fields['base']}.")
        return Setup(**fields)


_TABLES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, dict[str, Any]])
SOFTWARE = {name: msgspec.convert(table | {"name": name}, Software) for name, table in _TABLES.items()}


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
