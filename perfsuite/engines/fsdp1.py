"""FSDP1: FullyShardedDataParallel flattens each layer's parameters and shards the flat tensor (arXiv 2304.11277).

Precision as in fsdp2, so that the two can be compared: gathered in the compute dtype, reduced in fp32.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.engines._wrapped import Sharded
from perfsuite.engines.fsdp2 import sharded_traffic
from perfsuite.errors import WrongEngine
from perfsuite.rank.blocks import blocks, elements
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.replicas import replicas
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import checkpoints, offload


class Fsdp1(Sharded):
    """FULL_SHARD, every layer a unit; with ``dp<n>`` HYBRID_SHARD over n replicas."""

    def wrap(self, model: Module) -> Module:
        from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy

        layers = blocks(model)
        self.elements = elements([model])
        self.outside_blocks = self.elements - elements(layers)
        inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
        outside = [parameter for parameter in model.parameters() if id(parameter) not in inside]
        units = [*(list(layer.parameters()) for layer in layers), outside]
        if _adapted(model):
            units = [[one] for one in model.parameters()]
        # A unit is reduced as a whole if anything in it is trained.
        self.reduced = sum(one.numel() for unit in units if any(part.requires_grad for part in unit) for one in unit)
        hybrid = self.session.layout.replicas > 1
        return FullyShardedDataParallel(
            model,
            device_mesh=self.session.mesh["replicas", "shards"] if hybrid else self.session.mesh["shards"],
            sharding_strategy=ShardingStrategy.HYBRID_SHARD if hybrid else ShardingStrategy.FULL_SHARD,
            auto_wrap_policy=_policy(model, layers) if layers else None,
            mixed_precision=self.precision(model),
            cpu_offload=CPUOffload(offload_params=bool(self.session.recipe.offload_parameters)),
            device_id=self.session.device,
            use_orig_params=True,  # accelerate's choice: frozen and trained parameters may share a unit
        )

    def precision(self, model: Module) -> Any:
        """Gather in the compute dtype, reduce in fp32. peft casts an adapter's input to fp32, as its shard is."""
        import torch
        from torch.distributed.fsdp import MixedPrecision

        dtype = self.session.compute_dtype
        if dtype == torch.float32 or self.session.recipe.pure:
            return None
        cast = _adapted(model)
        return MixedPrecision(
            param_dtype=dtype, reduce_dtype=torch.float32, buffer_dtype=dtype, cast_forward_inputs=cast
        )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()  # FSDP's mixed precision casts

    def gradient_norm(self) -> Tensor:
        return gradient_norm(self.gradients(), self.session.device, [self.session.mesh.get_group("shards")])

    def check(self) -> dict[str, str | int]:
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

        if type(self.module) is not FullyShardedDataParallel:
            raise WrongEngine(f"fsdp1 must run in FullyShardedDataParallel, but this is {type(self.module).__name__}.")
        shards = self.session.layout.shards
        units = self._units()
        strategies = {unit.sharding_strategy for unit in units}
        whole = ShardingStrategy.NO_SHARD in strategies
        if whole and shards > 1:
            raise WrongEngine(f"fsdp1 must shard over {shards} ranks, but FSDP runs {strategies}.")
        here = sum(_shard(flat).numel() for flat in self._flat_parameters())
        if self.session.recipe.offload_parameters and any(not unit.cpu_offload.offload_params for unit in units):
            raise WrongEngine("fsdp1 must offload its parameters to the host, but FSDP does not.")
        padding = shards * len(units)
        if not self.elements / shards <= here <= self.elements / shards + padding:
            raise WrongEngine(f"fsdp1 must hold 1/{shards} of {self.elements:,} parameters, but this one has {here:,}.")
        return self.evidence(ranks=shards, elements_here=here, outside_blocks=self.outside_blocks)

    def traffic(self) -> dict[str, int]:
        return sharded_traffic(self.session, self.elements, self.outside_blocks, self.reduced)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for flat in self._flat_parameters():
            yield "parameters", _shard(flat)
            for gradient in (flat.grad, getattr(flat, "_saved_grad_shard", None)):
                if gradient is not None:
                    yield "gradients", gradient
        for buffer in self.model.buffers():
            yield "parameters", buffer
        for state in self.optimizer.state.values():
            yield from (("optimizer_state", value) for value in state.values())

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        from torch.distributed.fsdp import FullyShardedDataParallel

        with FullyShardedDataParallel.summon_full_params(self.module, writeback=False):
            yield from self.module.named_parameters()  # FSDP's own, which leaves its wrappers out of the names

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return replicas(self.session, map(_shard, self._flat_parameters()))

    def _units(self) -> list[Any]:
        from torch.distributed.fsdp import FullyShardedDataParallel

        return [unit for unit in FullyShardedDataParallel.fsdp_modules(self.module) if unit._handle is not None]

    def _flat_parameters(self) -> list[Any]:
        return [unit._handle.flat_param for unit in self._units()]


def _policy(model: Module, layers: Sequence[Module]) -> Any:
    """Each layer is a unit, and so is each adapter, by peft's policy, which accelerate takes: a unit has one dtype, and
    gradients of all that is in it.
    """
    from torch.distributed.fsdp.wrap import CustomPolicy

    kinds, adapted = {type(layer) for layer in layers}, _adapted(model)

    def is_unit(module: Module) -> bool:
        own = list(module.parameters(recurse=False))
        return type(module) in kinds or (adapted and bool(own) and all(one.requires_grad for one in own))

    return CustomPolicy(is_unit)


def _adapted(model: Module) -> bool:
    return any(hasattr(module, "lora_A") for module in model.modules())


def _shard(flat: Any) -> Any:
    """This rank's part of a flat parameter, which FSDP names only after the first forward."""
    return getattr(flat, "_local_shard", flat)


ENGINES = (
    Engine(
        name="fsdp1",
        timed=True,
        trainer=Fsdp1,
        dimension="shards",
        min_ranks=2,  # on one rank FSDP1 becomes NO_SHARD
        combines=frozenset({"dp"}),
        shards=frozenset({"optimizer", "gradients", "parameters"}),
        keeps="pieces",
        finds_device=True,  # torch/distributed/fsdp/_init_utils.py, _get_compute_device
        refuses=offload.ALL_OR_NOTHING
        | dict.fromkeys(
            checkpoints.BY_TORCH,
            "a rank on a CPU dies of a segmentation fault when torch 2.13 asks FSDP1 for its state",
        ),
        why_not=offload.why_not_fsdp,
        source="arXiv 2304.11277",
    ),
)
