"""Schedule: the learning rate of each step. It moves after the optimizer's step, and within the time of the step."""

import functools
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.techniques.checkpoints import BY_TORCH

WARMUP = 4  # steps
STEPS = 1_000


def warmup_cosine(optimizer: Any) -> Any:
    """transformers' schedule, a LambdaLR of torch. Its first step has a learning rate of zero."""
    from transformers.optimization import get_cosine_schedule_with_warmup

    return get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=WARMUP, num_training_steps=STEPS)


def why_not(proposal: Proposal) -> str:
    """A loop must step it once, and a checkpoint must have it."""
    if "accelerate" in proposal.techniques:
        return "Accelerate steps a schedule once for each rank, so it would end too early; hf_trainer steps it once."
    if "schedule_free" in proposal.techniques:
        return "schedule_free averages weights in place of a schedule."
    if not proposal.techniques.isdisjoint(BY_TORCH):
        return "torch's formats here save no schedule, so a training that resumes would warm up again."
    return ""


_schedule = functools.partial(Technique, slot="schedule", order=22)
TECHNIQUES = (
    _schedule("constant", "The learning rate is the same in every step.", default=True),
    _schedule(
        "warmup_cosine",
        f"The learning rate rises from zero in {WARMUP} steps, and falls as a cosine until step {STEPS:,} (arXiv "
        "1608.03983), by transformers.",
        sets={"schedule": warmup_cosine},
        why_not=why_not,
    ),
)
