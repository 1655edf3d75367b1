"""ZeRO++ (arXiv 2306.10209): what DeepSpeed's stage 3 does to send less between nodes.

Its hierarchical partition runs everywhere. Its quantized messages need kernels that DeepSpeed compiles for CUDA.
"""

import functools

from perfsuite.catalog.definitions import Proposal, Technique


def why_not(proposal: Proposal) -> str:
    """Only stage 3 gathers parameters, and the second copy is for fewer ranks than the first."""
    engine, ranks, own = proposal.engine, proposal.layout.data_ranks, proposal.numbers["hpz"]
    whole = "parameters" not in engine.shards or engine.dimension != "replicas"
    if "deepspeed" not in engine.packages or whole:
        return f"{engine.name} is not DeepSpeed's ZeRO stage 3, which gathers parameters."
    if not 1 < own < ranks or ranks % own:
        fits = " or ".join(f"hpz{width}" for width in range(2, ranks) if ranks % width == 0) or "none"
        equal = f"it takes several equal groups, and {fits} fits"
        return f"hpz{own} divides a second copy over groups of {own} of {ranks} ranks: {equal}."
    for name in ("offload_params", "offload", "nvme"):
        if name in proposal.techniques:
            return f"{name} keeps parameters off the device, and hpz keeps a second copy on it."
    return ""


_quantized = functools.partial(
    Technique,
    slot="quantized messages",
    order=4,
    refused="DeepSpeed quantizes messages by kernels that it compiles for CUDA, which perfsuite has not run on",
)
TECHNIQUES = (
    Technique(
        "hpz",
        "hpz<n>: backward gathers parameters from a second copy, which n ranks divide (ZeRO++, arXiv 2306.10209).",
        slot="second partition",
        order=4,
        parameter="second_partition",
        packages=("deepspeed",),
        why_not=why_not,
    ),
    _quantized("qwz", "Gathered weights are sent in 8 bits (ZeRO++, arXiv 2306.10209)."),
    _quantized("qgz", "Gradients are sent in 4 bits (ZeRO++, arXiv 2306.10209)."),
)
