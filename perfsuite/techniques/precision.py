"""Precision: the dtype of the arithmetic, and loss scaling for small gradients."""

import functools

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module


def allow_tf32(session: Session, model: Module) -> Module:
    """Let this rank's fp32 matmuls and convolutions use TF32 units."""
    import torch

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    return model


def lacks_tf32(proposal: Proposal) -> str:
    """Only some GPUs have TF32 units."""
    if proposal.device is None:
        return "a CPU has no TF32 arithmetic, so tf32 would be fp32 there."
    if "tf32" not in proposal.device.dense_flops:
        return f"{proposal.device.name} has no TF32 arithmetic, so tf32 would be fp32 there."
    return ""


def cast(session: Session, model: Module) -> Module:
    """Parameters and saved buffers in the compute dtype, as transformers loads a model in it.

    Not ``model.to(dtype)``, which rounds rotary frequencies too and cannot cast a module of fake tensors.
    """
    for tensor in model.state_dict(keep_vars=True).values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(session.compute_dtype)
    return model


_precision = functools.partial(Technique, slot="precision", order=10)
TECHNIQUES = (
    _precision(
        "fp32",
        "Parameters, gradients and arithmetic in fp32.",
        processes=("training", "inference", "xla"),
        default=True,
    ),
    _precision(
        "tf32",
        "fp32, whose matmuls round their inputs to 10 bits of mantissa.",
        sets={"tf32": True},
        applies=allow_tf32,
        why_not=lacks_tf32,
    ),
    _precision(
        "bf16",
        "Arithmetic in bf16 over fp32 parameters: autocast, or DeepSpeed's bf16 with fp32 master parameters.",
        processes=("training", "inference"),
        sets={"compute_dtype": "bfloat16"},
    ),
    _precision(
        "pure_bf16",
        "Parameters, gradients, optimizer state and arithmetic in bf16; nothing is in fp32.",
        sets={"compute_dtype": "bfloat16", "pure": True},
        applies=cast,
    ),
    _precision(
        "fp16",
        "Arithmetic in fp16 with dynamic loss scaling (arXiv 1710.03740).",
        processes=("training", "inference"),
        sets={"compute_dtype": "float16", "loss_scaling": True},
    ),
)
