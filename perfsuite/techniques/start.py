"""Start-up: how long a cell takes from a new process to its second step. meters/start_up.py measures it."""

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.techniques._cold_start import ColdStart

UNTRIED = (  # engines whose cold start has not been run
    *("autotp", "ep", "fairscale_fsdp", "fairscale_sdp", "fsdp1", "tp", "device_map"),
    *("megatron", "megatron_distributed", "megatron_interleaved"),
    *("pp_naive", "pp_gpipe", "pp_1f1b", "pp_interleaved", "pp_deepspeed"),
)


def why_not(proposal: Proposal) -> str:
    """No engine needs anything for it, but only what has been run is offered."""
    engine = proposal.engine.name
    return f"Nobody has tried a cold start of {engine} yet." if engine in UNTRIED else ""


TECHNIQUES = (
    Technique(
        "cold_start",
        "After all steps, each rank starts anew in a process of its own, which imports, builds and trains two steps.",
        slot="start",
        order=85,
        sets={"start": ColdStart},
        why_not=why_not,
    ),
)
