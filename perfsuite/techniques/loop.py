"""Loop: the caller of forward, backward and the optimizer: perfsuite's own loop, or a library's."""

import functools

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.techniques._accelerate import Accelerated
from perfsuite.techniques._hf_trainer import HfTrained


def why_not_fp16(proposal: Proposal) -> str:
    """Without a GPU, Accelerate silently drops fp16."""
    if proposal.device is None and "fp16" in proposal.techniques:
        return "on a CPU Accelerate silently turns fp16 into fp32"
    return ""


def why_not_trained(proposal: Proposal) -> str:
    """The Trainer reads rows of token ids here."""
    if not proposal.model.task:
        return f"{proposal.model.name} has batches of its own: guard a Trainer with such data as a script."
    return why_not_fp16(proposal)


_loop = functools.partial(Technique, slot="loop", order=70)
TECHNIQUES = (
    _loop("native", "The plain loop of the PyTorch documentation, or the engine's own.", default=True),
    _loop(
        "accelerate",
        "Accelerate prepares model and optimizer, and runs backward, accumulation and clipping.",
        loop=Accelerated,
        why_not=why_not_fp16,
        packages=("accelerate",),
    ),
    _loop(
        "hf_trainer",
        # Without padding the mean of the ranks' losses is the loss, by whichever rule a release weighs them.
        "transformers.Trainer.train() runs the steps, with its own data loader, loss and calls of Accelerate. "
        "The samples have no padding.",
        sets={"padded": False},
        loop=HfTrained,
        why_not=why_not_trained,
        packages=("accelerate", "greenlet"),
        preload=("torch._inductor.compile_fx", "datasets", "deepspeed"),  # what the Trainer's module imports
    ),
)
