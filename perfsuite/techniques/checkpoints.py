"""Checkpoints: how a training is saved, loaded and resumed. meters/checkpoints.py measures it, after all steps."""

import functools

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.techniques import _checkpoints as formats


def why_not_torch(proposal: Proposal) -> str:
    """torch gathers the state of its own wrappers, by the names of the model's parameters."""
    if proposal.engine.saves != "torch":
        return f"torch.distributed.checkpoint does not know the state that {proposal.engine.name} keeps."
    if "fp16" in proposal.techniques:
        return "The scale of an fp16 loss is in no state dictionary of torch: the script saves it."
    if not proposal.techniques.isdisjoint({"accelerate", "hf_trainer"}):
        return "Accelerate and the Trainer save by themselves: guard such a training as a script."
    return ""


def why_not_safetensors(proposal: Proposal) -> str:
    """save_pretrained is a method of transformers' models."""
    if not proposal.model.model_class:
        return f"{proposal.model.name} is no model of transformers, so it has no save_pretrained."
    return why_not_torch(proposal)


def why_not_deepspeed(proposal: Proposal) -> str:
    """ZeRO's own checkpoint is a method of its engine."""
    if proposal.engine.saves != "deepspeed":
        return f"{proposal.engine.name} is not ZeRO, so DeepSpeed has no checkpoint of it."
    if not proposal.techniques.isdisjoint({"nvme", "nvme_optimizer"}):
        return "What is offloaded to a disk is no tensor that could be compared."
    return ""


BY_TORCH = ("dcp", "dcp_async", "safetensors")  # the techniques that ask torch for the state
_format = functools.partial(Technique, slot="checkpoint", order=80)
TECHNIQUES = (
    _format(
        "dcp",
        "torch.distributed.checkpoint saves and loads: each rank its own shards.",
        sets={"checkpoint": formats.Dcp},
        why_not=why_not_torch,
    ),
    _format(
        "dcp_async",
        "The same with async_save: training goes on while a thread writes.",
        sets={"checkpoint": formats.DcpAsync},
        why_not=why_not_torch,
    ),
    _format(
        "safetensors",
        "save_pretrained writes the whole model in shards of safetensors, and torch.save the optimizer.",
        sets={"checkpoint": formats.Safetensors},
        why_not=why_not_safetensors,
        packages=("safetensors",),
    ),
    _format(
        "ds_checkpoint",
        "DeepSpeed's engine saves and loads: save_checkpoint and load_checkpoint.",
        sets={"checkpoint": formats.DeepSpeedCheckpoint},
        why_not=why_not_deepspeed,
    ),
)
