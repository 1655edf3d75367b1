"""Gradient accumulation: several micro-batches make one optimizer step."""

from perfsuite.catalog.definitions import Proposal, Technique


def why_not(proposal: Proposal) -> str:
    """Only torch's FSDP has gradients that wait whole, and a switch for it."""
    if "acc" not in proposal.numbers:
        return "reduce_each says when the micro-batches of a step are reduced: add +acc2."
    if "parameters" not in proposal.engine.shards or proposal.engine.packages:
        return f"{proposal.engine.name} has no switch for when it reduces gradients: fsdp1 and fsdp2 have one."
    return ""


TECHNIQUES = (
    Technique(
        "acc",
        "acc<n>: n micro-batches per rank and optimizer step.",
        slot="gradient accumulation",
        order=40,
        parameter="accumulation",
    ),
    Technique(
        "reduce_each",
        "Gradients are reduced and divided in each micro-batch, as torchtitan does, and never wait whole.",
        slot="gradient reduction",
        order=41,
        sets={"reduces_each": True},
        why_not=why_not,
    ),
)
