"""The common part of DeepSpeed's engines: deepspeed.initialize with the recipe's optimizer, and its step."""

import contextlib
import os
from typing import Any

from perfsuite.engines._deepspeed_config import fitting, quick_start
from perfsuite.errors import Unsupported, WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.native import evaluate
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module
from perfsuite.rank.trainer import StepOutcome, Trainer


def import_once() -> None:
    """Import what each rank with DeepSpeed would import, and leave out an extension that training does not call.

    In its first step ZeRO checks for the optimizer Muon, whose module imports torch's compiler: seconds. And on a CPU
    the process group builds an extension only for inference_all_reduce: a minute. If marked as unavailable, it is
    replaced by the process group's own all-reduce (deepspeed/comm/torch.py).
    """
    import deepspeed

    with contextlib.suppress(ImportError):  # releases before Muon
        import deepspeed.runtime.zero.muon.muon_optimizer
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def count_ranks(session: Session) -> None:
    """Say how many ranks the machine has, as DeepSpeed's launcher does, if the release asks a missing numactl."""
    from deepspeed.accelerator import get_accelerator

    try:
        get_accelerator().device_count()
    except FileNotFoundError:  # up to 0.15.4, on a CPU
        os.environ["LOCAL_SIZE"] = str(session.world_size)


class DeepSpeedTrainer(Trainer):
    """DeepSpeed casts the model and, below fp32, keeps fp32 master parameters."""

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        self.refuse_unsupported()
        count_ranks(session)
        self.model = self.arrange(model)
        self.initialize(self.model)

    def arrange(self, model: Module) -> Any:
        """The model as DeepSpeed is given it."""
        return model

    def initialize(self, model: Any) -> Any:
        """Pass the model to DeepSpeed with the recipe's optimizer, which is returned."""
        import deepspeed

        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.trained = sum(parameter.numel() for parameter in trainable)
        optimizer = self.session.recipe.optimizer(trainable, self.session.recipe.learning_rate)
        self.module: Any
        self.module, self.optimizer, _, _ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            lr_scheduler=self.session.recipe.schedule,
            config=self.fitting_config(),
            dist_init_required=False,
        )
        return optimizer

    def refuse_unsupported(self) -> None:
        """Raise Unsupported if DeepSpeed does not support the compute dtype here."""
        import torch
        from deepspeed.accelerator import get_accelerator

        session = self.session
        for dtype, supported in (
            (torch.bfloat16, get_accelerator().is_bf16_supported),
            (torch.float16, get_accelerator().is_fp16_supported),
        ):
            if session.compute_dtype == dtype and not supported():
                raise Unsupported(f"DeepSpeed has no {dtype} on this {session.job.device}: it lacks the instructions.")

    def fitting_config(self) -> dict[str, Any]:
        """What deepspeed.initialize is given: the keys that the installed release knows."""
        config = self.config() if self.session.recipe.stated else quick_start(self.config())
        return fitting(config, self.session.strategy.engine.name)

    def config(self) -> dict[str, Any]:
        """The config for every release."""
        recipe = self.session.recipe
        return {
            "train_micro_batch_size_per_gpu": self.session.job.workload.micro_batch,
            "gradient_accumulation_steps": recipe.accumulation,
            "bf16": {
                "enabled": recipe.compute_dtype == "bfloat16",
                "bf16_master_weights_and_grads": recipe.pure,
                "bf16_optimizer_states": recipe.pure,
            },
            "fp16": {"enabled": recipe.compute_dtype == "float16"},
            "gradient_clipping": recipe.clip or 0.0,  # DeepSpeed clips to a norm of 1 by default
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,  # the recipe chooses the optimizer, offloaded or not
            "steps_per_print": 2**31,
        }

    def check_engine(self, stage: int, ranks: int) -> None:
        """Prove the wrapper, its ZeRO stage, the model's dtype and the number of ranks that average gradients."""
        from deepspeed import DeepSpeedEngine

        name = self.session.strategy.engine.name
        if not isinstance(self.module, DeepSpeedEngine):
            raise WrongEngine(f"{name} must run in a DeepSpeedEngine, but this is {type(self.module).__name__}.")
        if self.module.zero_optimization_stage() != stage:
            raise WrongEngine(
                f"{name} is ZeRO stage {stage}, but DeepSpeed runs stage {self.module.zero_optimization_stage()}."
            )
        if self.session.recipe.schedule and self.module.lr_scheduler is None:
            raise WrongEngine(f"{name} must move the learning rate, but DeepSpeed has no schedule.")
        dtypes = {parameter.dtype for parameter in self.model.parameters()}
        if dtypes != {self.session.compute_dtype}:
            raise WrongEngine(f"The model must be in {self.session.compute_dtype}, but DeepSpeed has it in {dtypes}.")
        if self.module.dp_world_size != ranks:
            raise WrongEngine(
                f"{name} must average over {ranks} ranks, but DeepSpeed uses {self.module.dp_world_size}."
            )

    def reduced(self) -> None:
        """Called when all gradients are reduced, before the optimizer steps."""

    def gradient_norm(self) -> Any:
        """The norm of the whole gradient; called after the step."""
        return self.module.get_global_grad_norm()

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        mark = self.session.mark
        loss_sum = torch.zeros((), device=self.session.device)
        for number, micro_batch in enumerate(batch):
            last = number == len(batch) - 1
            with self.session.recipe.around():
                mark("forward")
                loss = micro_batch.loss(self.module) * micro_batch.weight
                loss_sum += loss.detach() / len(batch)
                mark("backward")
                self.module.backward(loss)
                del loss
            if last:
                mark("optimizer")
                self.reduced()
            self.module.step()
        mark("end")
        skipped = bool(getattr(self.optimizer, "overflow", False))
        return StepOutcome(loss_sum, self.gradient_norm(), skipped)

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        return evaluate(self, self.module, batch)
