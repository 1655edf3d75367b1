"""DistributedDataParallel: every rank has everything; gradients are all-reduced in buckets during backward."""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.engines._wrapped import Wrapped
from perfsuite.errors import WrongEngine
from perfsuite.rank.blocks import size
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload


class DistributedDataParallel(Wrapped):
    """torch.nn.parallel.DistributedDataParallel with its own defaults."""

    def wrap(self, model: Module) -> Module:
        from torch.nn.parallel import DistributedDataParallel as DDP

        devices = [self.session.device] if self.session.job.device == "cuda" else None
        return DDP(model, device_ids=devices)

    def check(self) -> dict[str, str | int]:
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP

        if type(self.module) is not DDP:
            raise WrongEngine(f"ddp must run in DistributedDataParallel, but this is {type(self.module).__name__}.")
        ranks = dist.get_world_size(self.module.process_group)
        if ranks != self.session.world_size:
            raise WrongEngine(
                f"ddp must reduce over {self.session.world_size} ranks, but its process group has {ranks}."
            )
        return self.evidence(ranks=ranks)

    def traffic(self) -> dict[str, int]:
        """Every gradient once, in its parameter's dtype: 2Ψ(n-1)/n on a ring's wire (arXiv 1910.02054, section 7.1).
        Buffers, such as the masks of pruning, are broadcast by rank 0 in the step's first forward (arXiv 2006.15704,
        section 4.1).
        """
        return {"all_reduce": size(self.trainable()), "broadcast": size(self.model.buffers())}

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return ((parameter, None) for parameter in self.model.parameters())


LOOPS = frozenset({"accelerate", "hf_trainer"})


def why_not_wrapped(proposal: Proposal) -> str:
    """A library's loop wraps the model itself, and a lone rank's it leaves bare."""
    if proposal.layout.data_ranks == 1 and proposal.techniques & LOOPS:
        return "on one rank Accelerate does not wrap the model in DDP: write single"
    return ""


ENGINES = (
    Engine(
        name="ddp",
        saves="torch",
        timed=True,
        loops=LOOPS,
        why_not=why_not_wrapped,
        refuses=offload.refused("DistributedDataParallel keeps everything on every device"),
        trainer=DistributedDataParallel,
        source="arXiv 2006.15704",
    ),
)
