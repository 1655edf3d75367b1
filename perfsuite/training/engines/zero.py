"""ZeRO by DeepSpeed: optimizer state (stage 1), gradients (2) and parameters (3) are sharded over all ranks.

Bucket sizes follow the rule by which transformers fills "auto" in a DeepSpeed config
(transformers/integrations/deepspeed.py), since that is how most people call DeepSpeed; a model without a hidden size
gets DeepSpeed's default, bounded by the model's own size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Engine
from perfsuite.errors import Unsupported, WrongEngine
from perfsuite.training.loop import evaluate
from perfsuite.training.trainer import MicroBatch, StepOutcome, Trainer

if TYPE_CHECKING:
    import torch

    from perfsuite.training.session import Session

DEFAULT_BUCKET = 500_000_000  # elements; deepspeed/runtime/zero/config.py
SHARDS = ("optimizer", "gradients", "parameters")


class Zero(Trainer):
    """deepspeed.initialize with the recipe's optimizer; DeepSpeed casts the model and keeps fp32 master parameters."""

    def __init__(self, session: Session, model: torch.nn.Module) -> None:
        import deepspeed

        super().__init__(session, model)
        self.refuse_unsupported()
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.trained = sum(parameter.numel() for parameter in trainable)
        optimizer = session.recipe.optimizer(trainable, session.recipe.learning_rate)
        self.module: Any
        self.module, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=self.config(), dist_init_required=False
        )

    def refuse_unsupported(self) -> None:
        """Raise Unsupported if DeepSpeed cannot have the compute dtype here."""
        import torch
        from deepspeed.accelerator import get_accelerator

        session = self.session
        for dtype, supported in (
            (torch.bfloat16, get_accelerator().is_bf16_supported),
            (torch.float16, get_accelerator().is_fp16_supported),
        ):
            if session.compute_dtype == dtype and not supported():
                raise Unsupported(f"DeepSpeed has no {dtype} on this {session.job.device}: it lacks the instructions.")

    @property
    def stage(self) -> int:
        """The ZeRO stage that the engine's name asks for."""
        return int(self.session.strategy.engine.name.removeprefix("zero"))

    def config(self) -> dict[str, Any]:
        """What deepspeed.initialize is given."""
        recipe = self.session.recipe
        hidden = getattr(getattr(self.model, "config", None), "hidden_size", None)
        bucket = hidden * hidden if hidden else min(DEFAULT_BUCKET, self.parameters)
        zero: dict[str, Any] = {"stage": self.stage, "reduce_bucket_size": bucket}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = int(0.9 * bucket)
            zero["stage3_param_persistence_threshold"] = 10 * hidden if hidden else 0
        return {
            "train_micro_batch_size_per_gpu": self.session.job.workload.micro_batch,
            "gradient_accumulation_steps": recipe.accumulation,
            "zero_optimization": zero,
            "bf16": {
                "enabled": recipe.compute_dtype == "bfloat16",
                "bf16_master_weights_and_grads": recipe.pure,
                "bf16_optimizer_states": recipe.pure,
            },
            "fp16": {"enabled": recipe.compute_dtype == "float16"},
            "gradient_clipping": recipe.clip or 0.0,  # DeepSpeed clips to a norm of 1 unless it is told otherwise
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 2**31,
        }

    def check(self) -> dict[str, str | int]:
        import torch
        from deepspeed import DeepSpeedEngine

        if not isinstance(self.module, DeepSpeedEngine):
            raise WrongEngine(f"zero{self.stage} must run in a DeepSpeedEngine, this is {type(self.module).__name__}.")
        if self.module.zero_optimization_stage() != self.stage:
            raise WrongEngine(
                f"zero{self.stage} is asked for, DeepSpeed runs stage {self.module.zero_optimization_stage()}."
            )
        if self.stage < 3 and self.optimizer.partition_gradients != (self.stage == 2):
            raise WrongEngine(f"zero{self.stage} is asked for, but DeepSpeed shards other parts than the stage's.")
        dtypes = {parameter.dtype for parameter in self.model.parameters()}
        if dtypes != {self.session.compute_dtype}:
            raise WrongEngine(f"The model must be in {self.session.compute_dtype}, DeepSpeed has it in {dtypes}.")
        ranks = self.module.dp_world_size
        if ranks != self.session.world_size:
            raise WrongEngine(
                f"zero{self.stage} must shard over {self.session.world_size} ranks, DeepSpeed uses {ranks}."
            )
        master_dtype = self.session.compute_dtype if self.session.recipe.pure else torch.float32
        dtypes = {tensor.dtype for tensor in self._master()}
        if dtypes != {master_dtype}:
            raise WrongEngine(f"The master parameters must be in {master_dtype}, DeepSpeed has them in {dtypes}.")
        held = sum(tensor.numel() for tensor in self._master())
        self._check_share("master parameters", held, self.trained, ranks)
        if self.stage == 3:
            partitions: list[Any] = list(self.model.parameters())
            held = sum(parameter.ds_tensor.numel() for parameter in partitions)
            self._check_share("parameters", held, self.parameters, ranks)
        return {
            "module": type(self.module).__name__,
            "optimizer": f"{type(self.optimizer).__name__}({type(self.optimizer.optimizer).__name__})",
            "ranks": ranks,
            "elements_here": held,
        }

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        mark = self.session.mark
        loss_sum = torch.zeros((), device=self.session.device)
        for number, micro_batch in enumerate(batch):
            last = number == len(batch) - 1
            with self.session.recipe.around():
                mark("forward")
                loss = self.module(**micro_batch.inputs).loss * micro_batch.weight
                loss_sum += loss.detach() / len(batch)
                mark("backward")
                self.module.backward(loss)
                del loss
            if last:
                mark("optimizer")
            self.module.step()
        mark("end")
        skipped = bool(getattr(self.optimizer, "overflow", False))
        return StepOutcome(loss_sum, self.module.get_global_grad_norm(), skipped)

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        return evaluate(self, self.module, batch)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for parameter in self.model.parameters():
            yield "parameters", getattr(parameter, "ds_tensor", parameter)
            if getattr(parameter, "ds_persist", False):
                yield "parameters", parameter  # small parameters stay whole on every rank
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
        for state in self.optimizer.optimizer.state.values():
            yield from (("optimizer_state", value) for value in state.values() if hasattr(value, "untyped_storage"))

    def replicated(self) -> Iterator[torch.Tensor]:
        return iter(()) if self.stage == 3 else (parameter.detach() for parameter in self.model.parameters())

    def _master(self) -> list[torch.Tensor]:
        """This rank's partition of the fp32 master parameters."""
        name = "fp32_partitioned_groups_flat" if self.stage == 3 else "single_partition_of_fp32_groups"
        if not hasattr(self.optimizer, name):
            raise WrongEngine(
                f"{type(self.optimizer).__name__} has no {name}, so it cannot prove ZeRO stage {self.stage}."
            )
        master: list[torch.Tensor] = getattr(self.optimizer, name)
        return master

    def _check_share(self, what: str, held: int, total: int, ranks: int) -> None:
        """A partition is 1/ranks of the whole; every tensor of the model may be padded to a multiple of the ranks."""
        padding = ranks * (len(list(self.model.parameters())) + 2 * ranks)
        if not total / ranks <= held <= total / ranks + padding:
            raise WrongEngine(
                f"zero{self.stage} must hold 1/{ranks} of {total:,} {what} on a rank, this rank holds {held:,}."
            )


def build_extensions() -> None:
    """Build, once and before any rank exists, what DeepSpeed compiles on first use on a CPU."""
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() == "cpu":
        from deepspeed.comm.torch import build_shm_op

        build_shm_op()


ENGINES = tuple(
    Engine(
        name=f"zero{stage}",
        trainer=Zero,
        shards=frozenset(SHARDS[:stage]),
        keeps="pieces",
        preload=("deepspeed",),
        compile=build_extensions,
        source="arXiv 1910.02054, section 5",
    )
    for stage in (1, 2, 3)
)
