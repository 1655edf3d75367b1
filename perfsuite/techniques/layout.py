"""Layout: the number of ranks in the dimensions that are not the engine's own, and what they share besides."""

from perfsuite.catalog.definitions import Proposal, Technique


def why_not_divided(proposal: Proposal) -> str:
    """What dividing each sequence over the tensor-parallel ranks lacks; empty if nothing."""
    engine, width = proposal.engine, proposal.layout.tensor
    if "sp" not in engine.combines:
        return f"{engine.name} has no tensor-parallel ranks that divide sequences, which sp needs"
    if width == 1:
        return "sp divides each sequence over tensor-parallel ranks: add tp2"
    if proposal.model.workload.sequence_length % width:
        return f"sp divides {proposal.model.workload.sequence_length} tokens over {width} ranks, which leaves a rest"
    return ""


TECHNIQUES = (
    Technique(
        "dp",
        "dp<n>: n replicas with different data, whose gradients are averaged.",
        slot="replicas",
        order=1,
        parameter="replicas",
    ),
    Technique(
        "tp",
        "tp<n>: every layer's matrices are divided over n ranks (arXiv 1909.08053).",
        slot="tensor-parallel width",
        order=2,
        parameter="tensor",
    ),
    Technique(
        "sp",
        "Outside of the divided matrices, each tensor-parallel rank has a part of every sequence (arXiv 2205.05198).",
        slot="sequence parallelism",
        order=3,
        why_not=why_not_divided,
    ),
)
