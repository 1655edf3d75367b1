"""Accelerate's loop, as in its documentation: prepare, accumulate, backward, clip, step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.trainer import StepOutcome, Trainer

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

MIXED_PRECISION = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


class Accelerated(LoopTrainer):
    """Precedes an engine's class: Accelerate chooses the wrapper, and the engine's ``check`` proves which one."""

    def __init__(self, session: Session, model: torch.nn.Module) -> None:
        from accelerate import Accelerator

        Trainer.__init__(self, session, model)
        with as_launched(session):
            self.accelerator: Any = Accelerator(
                # Without it Accelerate treats ranks without a GPU as independent programs.
                cpu=session.job.device == "cpu",
                mixed_precision="no" if session.recipe.pure else MIXED_PRECISION[session.recipe.compute_dtype],
                gradient_accumulation_steps=session.recipe.accumulation,
            )
        self.parameters = list(model.parameters())
        optimizer = session.recipe.optimizer(self.parameter_groups(), session.recipe.learning_rate)
        self.module, self.optimizer = self.accelerator.prepare(model, optimizer)

    def check(self) -> dict[str, str | int]:
        return super().check() | prove(self.session, self.accelerator)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        mark, clip = self.session.mark, self.session.recipe.clip
        loss_sum = torch.zeros((), device=self.session.device)
        norm = None
        for micro_batch in batch:
            with self.accelerator.accumulate(self.module), self.session.recipe.around():
                mark("forward")
                output = self.module(**micro_batch.inputs)
                loss = output.loss * micro_batch.weight
                loss_sum += loss.detach() / len(batch)
                del output
                mark("backward")
                self.accelerator.backward(loss)
                del loss
                if self.accelerator.sync_gradients:
                    mark("optimizer")
                    if clip:
                        norm = self.accelerator.clip_grad_norm_(self.trainable(), clip)
                    elif self.reads_norm:
                        self.accelerator.unscale_gradients()
                        norm = gradient_norm(self.gradients(), self.session.device)
                self.optimizer.step()
                if self.accelerator.sync_gradients:
                    mark("end")
                self.optimizer.zero_grad()
        return StepOutcome(loss_sum, norm, self.accelerator.optimizer_step_was_skipped)


@contextlib.contextmanager
def as_launched(session: Session) -> Iterator[None]:
    """The environment variables of a launcher, while Accelerate reads them.

    A program that was started alone has no rank, or Accelerate wraps it in DistributedDataParallel. A rank on a CPU
    gives its number of threads, or Accelerate sets another one.
    """
    import torch

    known = {name: os.environ[name] for name in ("LOCAL_RANK", "WORLD_SIZE")}
    if session.world_size == 1:
        for name in known:
            del os.environ[name]
    if session.job.device == "cpu":
        os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    yield
    os.environ.update(known)


def prove(session: Session, accelerator: Any) -> dict[str, str | int]:
    """Evidence that Accelerate knows of all ranks and computes in the recipe's precision. Raises WrongEngine.

    Accelerate's own report of its precision proves nothing: on a CPU it reports fp16 and computes in fp32.
    """
    import torch

    if accelerator.num_processes != session.world_size:
        raise WrongEngine(f"Accelerate must run {session.world_size} ranks, but it runs {accelerator.num_processes}.")
    device, recipe = session.job.device, session.recipe
    with accelerator.autocast():
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    expected = torch.float32 if recipe.pure else session.compute_dtype
    scaled = accelerator.scaler is not None
    if dtype != expected or scaled != recipe.loss_scaling:
        raise WrongEngine(
            f"Accelerate must compute in {expected} {'with' if recipe.loss_scaling else 'without'} loss scaling, "
            f"but it computes in {dtype} {'with' if scaled else 'without'}."
        )
    return {"accelerate": accelerator.distributed_type.value}
