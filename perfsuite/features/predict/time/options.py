"""What a user may say that a software does otherwise: ``--set NAME=VALUE``, and the same names in the judged tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.adapters import BASES, TARGETS
from perfsuite.features.predict.time.attention import KERNELS
from perfsuite.features.predict.time.cross_entropy import CROSS_ENTROPIES

RELEASES = ("25.11", "26.02", "26.02.01", "26.04", "26.04.01", "26.06", "26.06.01", "26.08")  # that have recipes
STEP_PARTS = {  # bytes per parameter of what Megatron does in a step besides Adam, by name
    "clip": costs.MEGATRON_CLIP,
    "zeros": costs.MEGATRON_ZEROS,
    "per_token": costs.MEGATRON_PER_TOKEN,
    "norm": costs.MEGATRON_NORM,
}


@dataclass(frozen=True)
class Option:
    """What a user may set otherwise. ``read`` turns a value into fields of a Setup, of which ``fields`` are known."""

    name: str
    values: str
    help: str
    read: Callable[[str, Mapping[str, Any]], dict[str, Any]]


def option(name: str) -> Option:
    """An option by its name. Raises UsageError for an unknown one."""
    if name not in OPTIONS:
        raise UsageError(f"--set has no option {name!r}: known are {', '.join(OPTIONS)}.")
    return OPTIONS[name]


def _choice(name: str, field_: str, known: Mapping[str, Any], help_: str) -> Option:
    """An option whose values have names."""

    def read(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
        return {field_: _named(name, value, known)}

    return Option(name, "|".join(known), help_, read)


def _named(name: str, value: str, known: Mapping[str, Any]) -> Any:
    """What the name of an option's value stands for. Raises UsageError for an unknown one."""
    if value not in known:
        raise UsageError(f"--set {name} is {value!r}: it must be one of {', '.join(known)}.")
    return known[value]


def _tensor(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
    known = {"none": (False, False), "backward": (True, False), "all": (True, True)}
    overlapped, pipelined = _named("tensor_overlap", value, known)
    return {"tensor_overlapped": overlapped, "tensor_pipelined": pipelined}


def _sequence(value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"sequence_parallel": _named("sequence_parallel", value, SWITCH) and fields["layout"].tensor > 1}


def _step(value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in value.split("+") if name != "adam"]
    if unknown := [name for name in names if name not in STEP_PARTS]:
        raise UsageError(f"--set step has {unknown[0]!r}: known are adam, {', '.join(STEP_PARTS)}, joined by +.")
    return {"optimizer_bytes": costs.MEGATRON_ADAM + sum(STEP_PARTS[name] for name in names)}


def _imbalance(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 1000:
        raise UsageError(f"--set imbalance is {value!r}: it must be a number from 1 on.")
    return {"imbalance": found}


def _adapter(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
    rank, _separator, targets = value.partition(":")
    targets = targets or TARGETS[0]
    if not rank.isdecimal() or not 1 <= int(rank) <= 1024 or targets not in TARGETS:
        known = ", ".join(TARGETS[1:])
        raise UsageError(
            f"--set lora is {value!r}: it must be a rank from 1 to 1024, and may end with one of :{known}."
        )
    return {"adapter": int(rank), "adapted": targets}


def _documents(value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if not value.isdecimal() or not 1 <= int(value) <= fields["sequence"]:
        most = f"from 1 to the {fields['sequence']:,} of a sample"
        raise UsageError(f"--set documents is {value!r}: it must be a number of tokens {most}.")
    return {"documents": int(value)}


def _compile(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
    known = {"on": (None, "compiled"), "layers": (None, "torch"), "off": (("llama", "half"), "torch")}
    eager, cross_entropy = _named("compile", value, known)
    return {"eager": eager, "cross_entropy": cross_entropy}


def _optimizer(value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    whole = costs.MOMENTS, costs.MASTER
    master = costs.REMAINDER if fields.get("parameter_bytes", 2) == 2 else costs.MASTER  # fp8 has no bits in common
    known = {"adam": whole, "adam8bit": (costs.MOMENTS_8BIT, costs.MASTER), "adam_bf16": (costs.MOMENTS_BF16, master)}
    moments, master = _named("optimizer", value, known)
    saved = sum(whole) - moments - master  # each is read and written
    moved = fields.get("optimizer_bytes", costs.MEGATRON_ADAM) - 2 * saved
    return {"moment_bytes": moments, "master_bytes": master, "optimizer_bytes": moved}


def _release(value: str, _: Mapping[str, Any]) -> dict[str, Any]:
    check_release(value)  # what its recipes set comes before all options: Software.setup
    return {}


def check_release(release: str) -> str:
    """A release of the recipes. Raises UsageError for an unknown one."""
    if release not in RELEASES:
        raise UsageError(f"--set release is {release!r}: it must be one of {', '.join(RELEASES)}.")
    return release


SWITCH = {"on": True, "off": False}
OF_EXPERTS = ("imbalance",)  # without effect on a model that has none; recipes set dispatch for every model
BYTES = {"1": 1, "2": 2, "4": 4}
OPTIONS = {
    one.name: one
    for one in (
        _choice("attention", "attention", {one: one for one in (*KERNELS, "unfused")}, "attention's kernels"),
        _choice(
            "context", "context_exchange", {"pairs": "pairs", "heads": "heads"}, "what ranks of a sequence exchange"
        ),
        Option(
            "lora", "16|16:qkv|…", "rank of the adapters of every matrix, or of fewer; all else is frozen", _adapter
        ),
        _choice("base", "base", {base: base for base in BASES}, "the format of weights that are frozen"),
        Option("documents", "1…", "tokens of each document that a sample packs: attention stays in it", _documents),
        _choice("attention_fp8", "attention_quantised", SWITCH, "attention's products are in fp8"),
        _choice("dropout", "dropout", SWITCH, "layers have dropout"),
        _choice("gradient_bytes", "gradient_bytes", BYTES, "bytes of a gradient that is summed and sent"),
        _choice("parameter_bytes", "parameter_bytes", BYTES, "bytes of a parameter that is gathered"),
        _choice("gradient_overlap", "overlapped", SWITCH, "gradients are sent while backward computes"),
        Option("tensor_overlap", "none|backward|all", "tensor-parallel messages that run during products", _tensor),
        _choice("send_overlap", "sends_overlapped", SWITCH, "stages send while they compute another chunk"),
        Option("sequence_parallel", "on|off", "tensor-parallel ranks divide norms and dropout", _sequence),
        _choice("prefetch", "prefetched", SWITCH, "backward gathers the next layer's parameters early"),
        Option("step", "adam|clip|zeros|…", f"what the step does in addition to Adam: {', '.join(STEP_PARTS)}", _step),
        Option("optimizer", "adam|adam8bit|adam_bf16", "formats of moments; bf16 is precision-aware", _optimizer),
        Option(
            "compile", "on|layers|off", "what is compiled: layers and cross entropy, layers alone, nothing", _compile
        ),
        _choice(
            "cross_entropy",
            "cross_entropy",
            {entropy: entropy for entropy in CROSS_ENTROPIES},
            "the cross entropy's kernels",
        ),
        _choice("graphs", "graphs", {one: one for one in ("none", "attention", "all")}, "what CUDA graphs launch"),
        _choice("dispatch", "dispatch", {"all_to_all": "all_to_all", "fused": "fused"}, "how tokens get to experts"),
        _choice("dispatch_overlap", "dispatch_overlapped", SWITCH, "experts' messages run during another micro-batch"),
        Option("release", "26.04", "recipes of that release instead of the newest: " + ", ".join(RELEASES), _release),
        Option("imbalance", "1…", "tokens of the fullest rank's experts by the mean", _imbalance),
    )
}
