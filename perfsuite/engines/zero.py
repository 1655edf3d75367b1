"""ZeRO by DeepSpeed: optimizer state (stage 1), gradients (2) and parameters (3) are sharded over all ranks.

Bucket sizes follow transformers' rule for "auto" in a DeepSpeed config (transformers/integrations/deepspeed.py), since
that is how most people use DeepSpeed. A model without a hidden size gets DeepSpeed's default, limited by the model's
own size.
"""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.engines import _zero_offload as offload
from perfsuite.engines._deepspeed import DeepSpeedTrainer, import_once
from perfsuite.errors import WrongEngine
from perfsuite.rank.norms import stored
from perfsuite.rank.torch_types import Tensor

DEFAULT_BUCKET = 500_000_000  # elements; deepspeed/runtime/zero/config.py
REUSE = 1_000_000_000  # elements; deepspeed/runtime/zero/config.py
SHARDS = ("optimizer", "gradients", "parameters")


class Zero(DeepSpeedTrainer):
    """One rank of ZeRO, with its part of the tensors that the stage shards."""

    stage: int

    def config(self) -> dict[str, Any]:
        hidden = getattr(getattr(self.model, "config", None), "hidden_size", None)
        bucket = hidden * hidden if hidden else min(DEFAULT_BUCKET, self.parameters)
        zero: dict[str, Any] = {"stage": self.stage, "reduce_bucket_size": bucket}
        zero |= offload.config(self.session, self.model)
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = int(0.9 * bucket)
            zero["stage3_param_persistence_threshold"] = 10 * hidden if hidden else 0
            if self.session.recipe.second_partition > 1:  # of use where backward gathers again
                zero["zero_hpz_partition_size"] = self.session.recipe.second_partition
                zero["stage3_max_reuse_distance"] = zero["stage3_max_live_parameters"] = 0
        return super().config() | {"zero_optimization": zero}

    def check(self) -> dict[str, str | int]:
        ranks = self.session.world_size
        self.check_engine(self.stage, ranks)
        if self.stage < 3 and self.optimizer.partition_gradients != (self.stage == 2):
            raise WrongEngine(f"zero{self.stage} is not what DeepSpeed runs: it shards other parts than the stage's.")
        held = self.check_masters(ranks)
        if self.stage == 3:
            partitions: list[Any] = list(self.model.parameters())
            held = sum(p.ds_tensor.ds_numel if offload.on_disk(p) else p.ds_tensor.numel() for p in partitions)
            self._check_share("parameters", held, self.parameters, ranks)
            self._check_second_partition(partitions, ranks)
        evidence: dict[str, str | int] = {
            "module": type(self.module).__name__,
            "optimizer": f"{type(self.optimizer).__name__}({type(self.optimizer.optimizer).__name__})",
            "ranks": ranks,
            "elements_here": held,
        }
        return evidence | offload.check(self.session, self.model, self.optimizer)

    def check_masters(self, ranks: int) -> int:
        """Prove that this rank has 1/ranks of the master parameters, in their dtype; returns the number of elements."""
        import torch

        held = sum(tensor.numel() for tensor in self._master()) + offload.swapped_elements(self.optimizer)
        self._check_share("master parameters", held, self.trained, ranks)
        wanted = self.session.compute_dtype if self.session.recipe.pure else torch.float32
        dtypes = {tensor.dtype for tensor in self._master()}
        if dtypes != {wanted}:
            raise WrongEngine(f"The master parameters must be in {wanted}, but DeepSpeed has them in {dtypes}.")
        return held

    def _check_second_partition(self, partitions: list[Any], ranks: int) -> None:
        wanted = self.session.recipe.second_partition
        wide = {partition.ds_secondary_tensor_group_size for partition in partitions} if wanted > 1 else set()
        if wide - {wanted}:
            raise WrongEngine(f"hpz{wanted} must divide a second copy over {wanted} of {ranks} ranks, not over {wide}.")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for parameter in self.model.parameters():
            yield from (("parameters", here) for here in stored(parameter))
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for buffer in self.model.buffers():
            yield "parameters", buffer
        for master in self._master():
            yield "master_parameters", master
            if master.grad is not None:
                yield "gradients", master.grad
        for gradients in getattr(self.optimizer, "averaged_gradients", {}).values():
            yield from (("gradients", gradient) for gradient in gradients or () if gradient is not None)
        if getattr(self.optimizer, "grad_partitions_flat_buffer", None) is not None:
            yield "gradients", self.optimizer.grad_partitions_flat_buffer
        yield from offload.held_on_host(self.optimizer)
        for state in self.optimizer.optimizer.state.values():
            yield from (("optimizer_state", value) for value in state.values())

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The model's own, not the masters, so that a gather of the updated parameters is part of the update."""
        import deepspeed

        for name, parameter in self.model.named_parameters():
            with deepspeed.zero.GatheredParameters(parameter, enabled=self.stage == 3):
                yield name, parameter

    def traffic(self) -> dict[str, int]:
        """Stages 1 and 2 all-reduce gradients and all-gather the updated parameters.

        On the wire that is 3Ψ(n-1)/n, but 2Ψ in arXiv 1910.02054, section 7.1 (a reduce-scatter for the all-reduce):
        DeepSpeed all-reduces buckets that belong to several ranks ("use_multi_rank_bucket_allreduce"), and each rank
        keeps its part. Stage 1 does so once per step, stage 2 after every micro-batch: it keeps no complete gradient.

        Stage 3 all-gathers parameters and reduce-scatters gradients in every micro-batch. Section 7.2 gathers twice, in
        forward and in backward. DeepSpeed gathers a parameter again only if its next use is more than REUSE elements
        later ("stage3_max_reuse_distance"). Forward and backward use two models' worth, so below half of it everything
        stays gathered in between. Above it this is an upper bound: parameters prefetched for backward stay too.

        Left out: the padding to a multiple of the ranks, and that the persistent small parameters of stage 3 are
        gathered once per step, not once per micro-batch.
        """
        micro_batches, element = self.session.recipe.accumulation, self.session.compute_dtype.itemsize
        trained, whole = element * self.trained, element * self.parameters
        if self.stage < 3:
            return {"all_reduce": trained * (micro_batches if self.stage == 2 else 1), "all_gather": trained}
        divided_twice = self.session.recipe.second_partition > 1
        again = whole if divided_twice else element * max(0, self.parameters - REUSE // 2)
        return {"all_gather": (whole + again) * micro_batches, "reduce_scatter": trained * micro_batches}

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return iter(()) if self.stage == 3 else ((parameter, None) for parameter in self.model.parameters())

    def _master(self) -> list[Tensor]:
        """This rank's partition of the fp32 master parameters."""
        name = "fp32_partitioned_groups_flat" if self.stage == 3 else "single_partition_of_fp32_groups"
        if not hasattr(self.optimizer, name):
            raise WrongEngine(
                f"{type(self.optimizer).__name__} has no {name}, so perfsuite cannot prove ZeRO stage {self.stage}."
            )
        master: list[Tensor] = getattr(self.optimizer, name)
        return master

    def _check_share(self, what: str, held: int, total: int, ranks: int) -> None:
        """A partition is 1/ranks of the whole; every tensor may be padded to a multiple of the ranks."""
        padding = ranks * (len(list(self.model.parameters())) + 2 * ranks)
        if not total / ranks <= held <= total / ranks + padding:
            raise WrongEngine(
                f"zero{self.stage} must hold 1/{ranks} of {total:,} {what} on a rank, but this rank has {held:,}."
            )


class Zero1(Zero):
    """Shards the optimizer state."""

    stage = 1


class Zero2(Zero):
    """Shards the gradients too."""

    stage = 2


class Zero3(Zero):
    """Shards the parameters too."""

    stage = 3


ENGINES = tuple(
    Engine(
        name=f"zero{trainer.stage}",
        timed=True,
        stacks=frozenset({"deepspeed"}),
        scatters=trainer.stage == 3,  # stages 1 and 2 all-reduce whole gradients
        trainer=trainer,
        keeps="pieces",
        casts=True,
        shards=frozenset(SHARDS[: trainer.stage]),
        refuses=offload.BEFORE_STAGE_3 if trainer.stage < 3 else {},
        why_not=offload.why_not,
        packages=("deepspeed",),
        saves="deepspeed",
        prepare=import_once,
        source="arXiv 1910.02054, section 5",
    )
    for trainer in (Zero1, Zero2, Zero3)
)
