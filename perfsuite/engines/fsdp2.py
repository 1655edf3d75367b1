"""FSDP2: parameters, gradients and optimizer state are sharded, each parameter along its first dimension (fully_shard).

Each layer is one unit, as in torchtitan: gathered before its forward, freed after it, gathered again for backward.
Arithmetic in bf16 or fp16 gathers in that dtype and reduces gradients in fp32 (torchtitan's defaults).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.errors import WrongEngine
from perfsuite.rank import tp_plan as tensor_parallel
from perfsuite.rank.blocks import blocks, elements
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.norms import is_sharded, local
from perfsuite.rank.replicas import replicas
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload


class Fsdp2(LoopTrainer):
    """fully_shard on every layer and on the model; with ``dp<n>`` n replicas of a sharded model (hybrid sharding)."""

    def wrap(self, model: Module) -> Any:
        from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

        self.plan = tensor_parallel.apply(self.session, model) if self.session.layout.tensor > 1 else {}
        self.elements = elements([model])
        self.reduced = sum(local(parameter).numel() for parameter in model.parameters() if parameter.requires_grad)
        self.in_float8 = sum(one.numel() for one in model.parameters() if hasattr(one, "fsdp_pre_all_gather"))
        layers = blocks(model)
        self.outside_blocks = self.elements - elements(layers)
        names = ("replicas", "shards") if self.session.layout.replicas > 1 else ("shards",)
        options: Any = {"mesh": self.session.mesh[names], "mp_policy": self.precision()}
        if self.session.recipe.offload_parameters:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.session.job.device == "cuda")
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

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()  # the precision policy casts

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        wrapper: Any = self.module
        wrapper.set_requires_gradient_sync(self.session.recipe.reduces_each)
        yield
        wrapper.set_requires_gradient_sync(True)

    def check(self) -> dict[str, str | int]:
        from torch.distributed.fsdp import FSDPModule

        if not isinstance(self.module, FSDPModule):
            raise WrongEngine(f"fsdp2 must run in an FSDPModule, but this is {type(self.module).__name__}.")
        shards, here = self.session.layout.shards, 0
        for name, parameter in self.model.named_parameters():
            kept, whole = local(parameter), parameter.numel()
            if self.session.recipe.offload_parameters and kept.device.type != "cpu":
                raise WrongEngine(f"{name} must be offloaded to the host, but it is on {kept.device}.")
            if not is_sharded(parameter, "shards"):
                raise WrongEngine(f"{name} must be sharded over {shards} ranks, but FSDP does not manage it.")
            here += kept.numel()
            rows = -(-parameter.shape[0] // shards)  # the first ranks have the larger share of rows
            if kept.numel() > rows * whole // parameter.shape[0]:
                raise WrongEngine(f"fsdp2 must hold 1/{shards} of {name} on a rank, but this rank has all of it.")
        divided = tensor_parallel.check(self.session, self.model, self.plan) if self.plan else {}
        return self.evidence(
            **divided | {"ranks": shards, "elements_here": here, "outside_blocks": self.outside_blocks}
        )

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return replicas(self.session, self.parameters)

    def traffic(self) -> dict[str, int] | None:
        volume = sharded_traffic(self.session, self.elements, self.outside_blocks, self.reduced)
        saved = (self.session.compute_dtype.itemsize - 1) * self.in_float8  # of layers, which are gathered twice
        volume["all_gather"] -= 2 * saved * self.session.recipe.accumulation
        if self.plan:
            messages = tensor_parallel.traffic(self.session, self.model, self.plan, autocast=False)
            if messages is None:
                return None
            volume |= {name: volume.get(name, 0) + size for name, size in messages.items()}
        return volume


def sharded_traffic(session: Session, elements: int, outside_blocks: int, reduced: int) -> dict[str, int]:
    """In every micro-batch all layers are gathered twice, and the other parameters once, since the model itself keeps
    them until backward; gradients (``reduced`` elements) are reduced once, in fp32, or in each micro-batch if the
    recipe says so. On the wire that is 3Ψ(n-1)/n minus the second gather of the other parameters.
    """
    gathered = (2 * elements - outside_blocks) * session.recipe.accumulation
    gradient_bytes = session.compute_dtype.itemsize if session.recipe.pure else 4
    reduced *= session.recipe.accumulation if session.recipe.reduces_each else 1
    volume = {"all_gather": gathered * session.compute_dtype.itemsize, "reduce_scatter": gradient_bytes * reduced}
    if session.layout.replicas > 1:
        volume["all_reduce"] = gradient_bytes * reduced // session.layout.shards
    return volume


ENGINES = (
    Engine(
        name="fsdp2",
        saves="torch",
        timed=True,
        stacks=frozenset({"fsdp2"}),
        keeps="dtensors",
        trainer=Fsdp2,
        dimension="shards",
        combines=frozenset({"dp", "tp"}),
        shards=frozenset({"optimizer", "gradients", "parameters"}),
        refuses=offload.ALL_OR_NOTHING,
        why_not=lambda proposal: offload.why_not_fsdp(proposal) or tensor_parallel.why_not_divided(proposal),
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
)
