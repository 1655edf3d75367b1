"""FSDP2: parameters, gradients and optimizer state are sharded, each parameter along its first dimension (fully_shard).

Each layer is one unit, as torchtitan has it: gathered before its forward, freed behind it, gathered again for backward.
Arithmetic in bf16 or fp16 gathers in that dtype and reduces gradients in fp32 (torchtitan's defaults).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Engine, Traffic
from perfsuite.errors import WrongEngine
from perfsuite.training.blocks import blocks, elements
from perfsuite.training.loop import LoopTrainer

if TYPE_CHECKING:
    import torch


class Fsdp2(LoopTrainer):
    """fully_shard on every layer and on the model; with ``dp<n>`` n replicas of a sharded model (hybrid sharding)."""

    module: Any

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        from torch.distributed.fsdp import fully_shard

        self.elements = elements([model])
        layers = blocks(model)
        self.outside_blocks = self.elements - elements(layers)
        names = ("replicas", "shards") if self.session.layout.replicas > 1 else ("shards",)
        options: Any = {"mesh": self.session.mesh[names], "mp_policy": self.precision()}
        for layer in layers:
            fully_shard(layer, **options)
        return fully_shard(model, **options)

    def precision(self) -> Any:
        """Gather in the compute dtype, reduce in fp32."""
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy

        dtype = self.session.compute_dtype
        if dtype == torch.float32 or self.session.recipe.pure:
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)

    def kept_parameters(self) -> Iterable[torch.nn.Parameter]:
        return self.module.parameters()  # type: ignore[no-any-return]  # the shards, also while gathered ones stand in

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()  # the precision policy casts

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        self.module.set_requires_gradient_sync(False)
        yield
        self.module.set_requires_gradient_sync(True)

    def check(self) -> dict[str, str | int]:
        from torch.distributed.fsdp import FSDPModule

        if not isinstance(self.module, FSDPModule):
            raise WrongEngine(f"fsdp2 must run in an FSDPModule, this is {type(self.module).__name__}.")
        shards, here = self.session.layout.shards, 0
        for name, parameter in self.module.named_parameters():
            kept, whole = getattr(parameter, "_local_tensor", parameter), parameter.numel()
            here += kept.numel()
            rows = -(-parameter.shape[0] // shards)  # the first ranks hold the larger share of rows
            if kept.numel() > rows * whole // parameter.shape[0]:
                raise WrongEngine(f"fsdp2 must hold 1/{shards} of {name} on a rank, this rank holds all of it.")
        return self.evidence(ranks=shards, elements_here=here, outside_blocks=self.outside_blocks)


def traffic(traffic: Traffic) -> Mapping[str, int]:
    """All layers are gathered twice, what is outside of them once: the model itself keeps it until backward.

    With one replica that is 3Ψ(n-1)/n on the wire, less the second gathering of what is outside of the layers.
    """
    gathered = 2 * traffic.parameters - traffic.outside_blocks
    volume = {
        "all_gather": gathered * traffic.compute_bytes,
        "reduce_scatter": 4 * traffic.parameters,
    }
    if traffic.layout.replicas > 1:
        volume["all_reduce"] = 4 * traffic.parameters // traffic.layout.shards
    return volume


ENGINES = (
    Engine(
        name="fsdp2",
        trainer=Fsdp2,
        dimension="shards",
        combines=frozenset({"dp"}),
        shards=frozenset({"optimizer", "gradients", "parameters"}),
        traffic=traffic,
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
)
