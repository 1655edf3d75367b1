"""fairscale's FullyShardedDataParallel, the model of torch's: parameters, gradients and optimizer state are sharded.

As in fsdp1, every layer is a unit, which is gathered in the compute dtype and reduced in fp32.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.engines import _fairscale_cpu as on_cpu
from perfsuite.engines._wrapped import Sharded
from perfsuite.errors import WrongEngine
from perfsuite.rank.blocks import blocks, elements
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload


class FairscaleFsdp(Sharded):
    """Flat parameters that are resharded after forward, and no buckets: each unit's gradient is one tensor already."""

    def wrap(self, model: Module) -> Any:
        from fairscale.nn.data_parallel import FullyShardedDataParallel as FSDP

        on_cpu.require_release()
        if self.session.job.device == "cpu":
            on_cpu.let_run_on_cpu()
        layers = blocks(model)
        self.elements = elements([model])
        self.outside_blocks = self.elements - elements(layers)
        options = {"bucket_cap_mb": 0, "compute_device": self.session.device, **self.precision()}
        for parent, name, layer in _places(model, layers):
            setattr(parent, name, FSDP(layer, **options))
        return FSDP(model, **options)

    def precision(self) -> dict[str, Any]:
        """Gather in the compute dtype, reduce in fp32."""
        import torch

        dtype, pure = self.session.compute_dtype, self.session.recipe.pure
        if dtype == torch.float32 or pure:
            return {"compute_dtype": dtype}
        return {"compute_dtype": dtype, "mixed_precision": True, "fp32_reduce_scatter": True}

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()  # FSDP's mixed precision casts

    def gradient_norm(self) -> Tensor:
        import torch.distributed as dist

        return gradient_norm(self.gradients(), self.session.device, [dist.group.WORLD])

    def check(self) -> dict[str, str | int]:
        from fairscale.nn.data_parallel import FullyShardedDataParallel as FSDP

        if type(self.module) is not FSDP:
            raise WrongEngine(
                f"fairscale_fsdp must run in fairscale's FullyShardedDataParallel, but this is "
                f"{type(self.module).__module__}.{type(self.module).__name__}."
            )
        ranks = self.session.world_size
        units = sum(isinstance(module, FSDP) for module in self.module.modules())
        here = sum(parameter.numel() for parameter in self.parameters)
        if not self.elements / ranks <= here <= self.elements / ranks + ranks * units:  # each unit is padded
            raise WrongEngine(
                f"fairscale_fsdp must hold 1/{ranks} of {self.elements:,} parameters, but this rank has {here:,}."
            )
        return self.evidence(ranks=ranks, units=units, elements_here=here)

    def traffic(self) -> dict[str, int]:
        """In every micro-batch each layer is gathered twice. The parameters outside of layers stay gathered until the
        step's last backward. Gradients are reduced once, in fp32.
        """
        recipe, element = self.session.recipe, self.session.compute_dtype.itemsize
        gathered = 2 * (self.elements - self.outside_blocks) * recipe.accumulation + self.outside_blocks
        reduced = self.elements * (element if recipe.pure else 4)
        return {"all_gather": gathered * element, "reduce_scatter": reduced}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from super().tensors()
        shards = (getattr(parameter, "_saved_grad_shard", None) for parameter in self.parameters)
        yield from (("gradients", shard) for shard in shards if shard is not None)

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        wrapper: Any = self.module
        with wrapper.summon_full_params(volatile=True):
            yield from wrapper.named_parameters()  # FSDP's own, which leaves its wrappers out of the names


def _places(model: Module, layers: list[Module]) -> list[tuple[Module, str, Module]]:
    """Each layer with its parent and its name there."""
    wanted = set(map(id, layers))
    places = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    return [place for place in places if id(place[2]) in wanted]


ENGINES = (
    Engine(
        name="fairscale_fsdp",
        trainer=FairscaleFsdp,
        min_ranks=2,
        dimension="shards",
        shards=frozenset({"optimizer", "gradients", "parameters"}),
        keeps="pieces",
        packages=("fairscale",),
        preload=("fairscale.nn.data_parallel",),
        refuses={
            **dict.fromkeys(offload.NAMES, "perfsuite runs fairscale's FSDP with everything on the device"),
            "compile": "torch.compile sees another size of a parameter than its trace (AssertionError: expected size)",
            **dict.fromkeys(
                ("lora", "dora"),
                "its flat parameters are trained or frozen as a whole (AssertionError: expects all parameters to have "
                "same requires_grad)",
            ),
            "pure_bf16": "it accepts parameters in fp32 or fp16 alone (ValueError: Expecting FP16 param type)",
        },
        source="https://fairscale.readthedocs.io/en/stable/api/nn/fsdp.html",
    ),
)
