"""Optimizers: the state per parameter, and the step."""

import functools
import importlib
import importlib.util
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.rank.extensions import build_lock
from perfsuite.rank.releases import need_release, refused
from perfsuite.techniques.checkpoints import BY_TORCH

STEPPED_ON_HOST = frozenset({"offload_optimizer", "offload", "nvme_optimizer", "nvme"})  # techniques/offload.py


def adamw(parameters: Any, learning_rate: float, **options: Any) -> Any:
    """torch's AdamW with its own default implementation (a loop on a CPU, foreach on CUDA)."""
    import torch

    return torch.optim.AdamW(parameters, lr=learning_rate, **options)


def sgd(parameters: Any, learning_rate: float, **options: Any) -> Any:
    """torch's SGD."""
    import torch

    return torch.optim.SGD(parameters, lr=learning_rate, **options)


def adafactor(parameters: Any, learning_rate: float) -> Any:
    """transformers' Adafactor as its Trainer builds it with optim="adafactor".

    It is not torch.optim.Adafactor, which scales its step by the size of the parameter. The Trainer's option gives
    transformers' one, and with these arguments it uses the given learning rate.
    """
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=learning_rate, scale_parameter=False, relative_step=False)


def adamw_bnb(parameters: Any, learning_rate: float, *, kind: str) -> Any:
    """A class of bitsandbytes. In 8 bits, tensors of less than 4,096 elements keep their state in fp32. Paged state of
    100,000 elements and more is in CUDA's unified memory, which is the host's when the device lacks room.
    """
    import bitsandbytes

    parameters = list(parameters)  # or groups of them
    first = parameters[0]["params"][0] if isinstance(parameters[0], dict) else parameters[0]
    if first.device.type == "cpu":
        need_release("bitsandbytes", "0.50.0", "adamw8bit", "kernel of 8-bit optimizers for a CPU")
    made: Any = getattr(bitsandbytes.optim, kind)
    return made(parameters, lr=learning_rate, weight_decay=1e-2)


def adamw_ao(parameters: Any, learning_rate: float, *, bits: int) -> Any:
    """torchao's AdamW with a state of so many bits. It would compile its step for each shape of parameter, which takes
    seconds per shape and fails under a counting dispatch mode. So it runs uncompiled, with the same operators.
    """
    import torch

    with refused(f"adamw{bits}bit_ao", "torchao"):
        # up to 0.9 it is a prototype
        path = "torchao.optim" if importlib.util.find_spec("torchao.optim") else "torchao.prototype.low_bit_optim"
        optim = importlib.import_module(path)
    kind: Any = getattr(optim, f"AdamW{bits}bit")

    class UncompiledAdamW(kind):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            with torch.compiler.set_stance("force_eager"):
                return super().step(closure)

    return UncompiledAdamW(parameters, lr=learning_rate, weight_decay=1e-2)


def schedule_free(parameters: Any, learning_rate: float) -> Any:
    """AdamW that evaluates an average of its weights, without a schedule. It begins in the mode in which it steps."""
    from schedulefree import AdamWScheduleFree

    optimizer = AdamWScheduleFree(parameters, lr=learning_rate, weight_decay=1e-2)
    optimizer.train()
    return optimizer


def cpu_adam(parameters: Any, learning_rate: float) -> Any:
    """DeepSpeed's AdamW for a CPU's vector instructions; its state is in fp32 by default."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    parameters = list(parameters)  # or groups of them
    each = [one for group in parameters for one in (group["params"] if isinstance(group, dict) else [group])]
    pure = all(parameter.dtype == torch.bfloat16 for parameter in each)
    return DeepSpeedCPUAdam(parameters, lr=learning_rate, weight_decay=1e-2, fp32_optimizer_states=not pure)


def build_cpu_adam() -> None:
    """Compile the operator of DeepSpeedCPUAdam, half a minute the first time."""
    from deepspeed.ops.op_builder import CPUAdamBuilder

    with build_lock():
        CPUAdamBuilder().load(verbose=False)


def needs_matrices(proposal: Proposal, *, why: str) -> str:
    """Some optimizers need whole parameters, not pieces of them."""
    if proposal.engine.keeps == "pieces":
        return f"{proposal.engine.name} gives its optimizer pieces of parameters: {why}."
    return ""


def needs_plain(proposal: Proposal, *, why: str) -> str:
    """Some optimizers do not support DTensors, which FSDP2 and tensor parallelism use for parameters."""
    if proposal.engine.keeps == "dtensors" or "tp" in proposal.techniques:
        return f"{proposal.engine.name} keeps parameters as DTensors: {why}."
    return ""


def lacks_for_adafactor(proposal: Proposal) -> str:
    """Adafactor needs rows and columns, of plain tensors."""
    return needs_matrices(
        proposal, why="they have no rows and columns, so Adafactor would keep every second moment whole"
    ) or needs_plain(
        proposal, why='transformers\' Adafactor adds them to plain tensors ("got mixed torch.Tensor and DTensor")'
    )


def needs_modes(proposal: Proposal) -> str:
    """An optimizer that evaluates other weights than it trains must be told when."""
    if proposal.engine.casts:
        return (
            f"{proposal.engine.name} puts DeepSpeed's optimizer around this one, which does not pass on train() and "
            "eval(): evaluations would have the weights of training."
        )
    if not proposal.techniques.isdisjoint(BY_TORCH):
        return "schedulefree saves its weights in eval mode, and perfsuite saves within a training."
    return ""


def needs_host(proposal: Proposal) -> str:
    """A CPU cannot step parameters on a GPU."""
    reason = needs_plain(proposal, why="DeepSpeed's kernel reads a plain tensor's memory, which they do not have")
    if reason:
        return reason
    if proposal.device is not None and not proposal.techniques.intersection(STEPPED_ON_HOST):
        return f"cpu_adam steps on the host; {proposal.engine.name} keeps parameters on the GPU: +offload_optimizer."
    return ""


def needs_pages(proposal: Proposal) -> str:
    """Unified memory is CUDA's."""
    if proposal.device is None:
        return "a paged optimizer keeps its state in CUDA's unified memory, and a CPU has none."
    return needs_plain(proposal, why='bitsandbytes\' operator refuses them ("got mixed torch.Tensor and DTensor")')


def _optimizer(name: str, optimizer: Any, meaning: str, **more: Any) -> Technique:
    fields = {"optimizer": optimizer, **more.pop("sets", {})}
    return Technique(name=name, slot="optimizer", order=20, meaning=meaning, sets=fields, **more)


_QUANTIZED = "two moments per parameter (arXiv 2110.02861)"
_BITSANDBYTES: dict[str, Any] = {
    "packages": ("bitsandbytes",),
    "why_not": functools.partial(
        needs_plain, why='bitsandbytes\' operator refuses them ("got mixed torch.Tensor and DTensor")'
    ),
}
_PAGED = _BITSANDBYTES | {"why_not": needs_pages, "sets": {"paged": True}}
_AO: dict[str, Any] = {
    "packages": ("torchao",),
    "why_not": functools.partial(
        needs_matrices,
        why="torchao quantizes only tensors whose length is a multiple of its block. A piece's length is arbitrary, so "
        "some state would stay in fp32",
    ),
}

TECHNIQUES = (
    _optimizer("adamw", adamw, "AdamW, two fp32 moments per parameter (arXiv 1711.05101).", default=True),
    _optimizer(
        "adamw_loop", functools.partial(adamw, foreach=False, fused=False), "AdamW, one parameter after the other."
    ),
    _optimizer(
        "adamw_foreach",
        functools.partial(adamw, foreach=True),
        "AdamW, one operator for all parameters at a time; needs temporaries of the size of all parameters.",
    ),
    _optimizer("adamw_fused", functools.partial(adamw, fused=True), "AdamW, the whole step in one kernel."),
    _optimizer(
        "adafactor",
        adafactor,
        "Adafactor, a matrix's second moment kept as a row and a column (arXiv 1804.04235), by transformers.",
        why_not=lacks_for_adafactor,
    ),
    _optimizer(
        "adamw8bit",
        functools.partial(adamw_bnb, kind="AdamW8bit"),
        f"AdamW by bitsandbytes, {_QUANTIZED} in 8 bits.",
        **_BITSANDBYTES,
    ),
    _optimizer(
        "paged_adamw",
        functools.partial(adamw_bnb, kind="PagedAdamW32bit"),
        "AdamW by bitsandbytes, two fp32 moments in unified memory, which the host has if the device lacks room.",
        **_PAGED,
    ),
    _optimizer(
        "paged_adamw8bit",
        functools.partial(adamw_bnb, kind="PagedAdamW8bit"),
        "As adamw8bit, with the moments in unified memory (arXiv 2305.14314).",
        **_PAGED,
    ),
    _optimizer(
        "adamw8bit_ao", functools.partial(adamw_ao, bits=8), f"AdamW by torchao, {_QUANTIZED} in 8 bits.", **_AO
    ),
    _optimizer(
        "adamw4bit_ao",
        functools.partial(adamw_ao, bits=4),
        "AdamW by torchao, two moments per parameter in 4 bits (arXiv 2309.01507).",
        **_AO,
    ),
    _optimizer(
        "schedule_free",
        schedule_free,
        "AdamW by schedulefree, which needs no schedule: two moments of fp32 (arXiv 2405.15682).",
        packages=("schedulefree",),
        why_not=needs_modes,
    ),
    _optimizer("sgd", sgd, "Stochastic gradient descent, without state per parameter."),
    _optimizer(
        "sgd_momentum",
        functools.partial(sgd, momentum=0.9),
        "Stochastic gradient descent with a momentum of 0.9, one fp32 moment per parameter.",
    ),
    _optimizer(
        "cpu_adam",
        cpu_adam,
        "AdamW by DeepSpeed for a CPU's vector instructions, two moments per parameter, in fp32 except with pure_bf16.",
        packages=("deepspeed",),
        preload=("deepspeed",),
        prepare=build_cpu_adam,
        why_not=needs_host,
    ),
    Technique(
        "adamw_apex",
        "FusedAdam of NVIDIA's apex.",
        slot="optimizer",
        order=20,
        refused="NVIDIA's apex is not on PyPI, where that name is another package; adamw_fused is "
        "the same step in torch",
    ),
)
