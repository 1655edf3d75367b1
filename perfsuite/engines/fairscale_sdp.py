"""fairscale's sharded data parallelism: optimizer state and gradients lie on one rank per parameter (ZeRO stage 2).

OSS gives each parameter, as a whole, to the rank that has the fewest elements so far. ShardedDataParallel reduces each
gradient to its owner during backward, and OSS broadcasts what the owners updated. fairscale is no longer developed:
0.4.13 is of 2022.
"""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.engines._wrapped import Sharded
from perfsuite.errors import WrongEngine
from perfsuite.rank.blocks import size
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload


class ShardedDataParallel(Sharded):
    """fairscale.nn.ShardedDataParallel without buckets, over fairscale.optim.OSS.

    Its buckets (``reduce_buffer_size``, by default of 8 Mi elements) are views that ``zero_grad(set_to_none=True)``
    drops, and that is torch's default since 2.0: from then on, a bucket's gradients are those of step 1.
    """

    def wrap(self, model: Module) -> Any:
        from fairscale.nn.data_parallel import ShardedDataParallel as SDP
        from fairscale.optim import OSS

        self.parameters = list(model.parameters())
        make = self.session.recipe.optimizer
        learning_rate = self.session.recipe.learning_rate
        self.oss = OSS(self.parameter_groups(model), optim=lambda groups, lr: make(groups, lr), lr=learning_rate)
        return SDP(model, self.oss, reduce_buffer_size=0, warn_on_trainable_params_changed=False)

    def make_optimizer(self, module: Module) -> Any:
        return self.oss

    def gradient_norm(self) -> Tensor:
        import torch.distributed as dist

        return gradient_norm(self.gradients(), self.session.device, [dist.group.WORLD])

    def check(self) -> dict[str, str | int]:
        """A rank steps what OSS gave it and nothing else. No two shares differ by more than the largest parameter."""
        from fairscale.nn.data_parallel import ShardedDataParallel as SDP
        from fairscale.optim import OSS

        ranks = self.session.world_size
        if type(self.module) is not SDP or type(self.optimizer) is not OSS:
            raise WrongEngine(
                f"fairscale_sdp must run in ShardedDataParallel over OSS, but this is {type(self.module).__name__} "
                f"over {type(self.optimizer).__name__}."
            )
        oss: Any = self.optimizer
        shares = [_parameters(groups) for groups in oss.partition_parameters()]
        here = shares[self.session.rank]
        stepped = {id(parameter) for parameter in _parameters(oss.optim.param_groups)}
        trained = {id(parameter) for parameter in self.trainable()}
        if len(shares) != ranks or sum(map(len, shares)) != len(trained) or stepped != {id(part) for part in here}:
            raise WrongEngine(
                f"fairscale_sdp must divide {len(trained)} parameters over {ranks} ranks, but this rank steps "
                f"{len(stepped)} of {sum(map(len, shares))}."
            )
        sizes = [sum(parameter.numel() for parameter in share) for share in shares]
        largest = max(parameter.numel() for parameter in self.trainable())
        if max(sizes) - min(sizes) > largest:
            raise WrongEngine(f"fairscale_sdp must share the parameters out evenly, but ranks have {sizes} elements.")
        inner = type(oss.optim).__name__
        return self.evidence(optimizer=f"OSS({inner})", ranks=ranks, elements_here=sizes[self.session.rank])

    def traffic(self) -> dict[str, int]:
        """Every gradient once to its owner, and every trained parameter once from there: (n-1)/n of both on a wire.
        Buffers are broadcast by rank 0 in the step's last forward.
        """
        trained = size(self.trainable())
        return {"reduce": trained, "broadcast": trained + size(self.model.buffers())}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for parameter in self.parameters:
            yield "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for buffer in self.model.buffers():
            yield "parameters", buffer
        oss: Any = self.optimizer
        for state in oss.optim.state.values():
            yield from (("optimizer_state", value) for value in state.values())

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return ((parameter, None) for parameter in self.model.parameters())


def _parameters(groups: Any) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


ENGINES = (
    Engine(
        name="fairscale_sdp",
        trainer=ShardedDataParallel,
        min_ranks=2,
        shards=frozenset({"optimizer", "gradients"}),
        packages=("fairscale",),
        preload=("fairscale.optim", "fairscale.nn.data_parallel"),
        refuses=dict.fromkeys(offload.NAMES, "OSS and ShardedDataParallel keep everything on the device")
        | {"schedule_free": "OSS does not pass on train() and eval(), by which that optimizer changes its weights"},
        source="https://fairscale.readthedocs.io/en/stable/deep_dive/oss_sdp_fsdp.html",
    ),
)
