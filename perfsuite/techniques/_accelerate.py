"""Accelerate's loop, as in its documentation: prepare, accumulate, backward, clip, step."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.plain_loop import Loop
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module
from perfsuite.rank.trainer import StepOutcome

MIXED_PRECISION = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


class Accelerated(Loop):
    """Accelerate chooses the wrapper, and the engine's ``check`` proves which it chose."""

    accelerator: Any

    def prepare(self, model: Module) -> tuple[Module, Any]:
        from accelerate import Accelerator

        recipe = self.session.recipe
        with as_launched(self.session):
            self.accelerator = Accelerator(
                # Without it Accelerate takes ranks without a GPU for programs that have nothing to do with each other.
                cpu=self.session.job.device == "cpu",
                mixed_precision="no" if recipe.pure else MIXED_PRECISION[recipe.compute_dtype],
                gradient_accumulation_steps=recipe.accumulation,
            )
        module, optimizer = self.accelerator.prepare(model, self.engine.make_optimizer(model))
        return module, optimizer

    def check(self) -> dict[str, str | int]:
        return prove(self.session, self.accelerator)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        engine, mark, clip = self.engine, self.session.mark, self.session.recipe.clip
        loss_sum = torch.zeros((), device=self.session.device)
        norm = None
        for micro_batch in batch:
            with self.accelerator.accumulate(engine.module), self.session.recipe.around():
                mark("forward")
                loss = micro_batch.loss(engine.module) * micro_batch.weight
                loss_sum += loss.detach() / len(batch)
                mark("backward")
                self.accelerator.backward(loss)
                del loss
                if self.accelerator.sync_gradients:
                    mark("optimizer")
                    if clip:
                        norm = self.accelerator.clip_grad_norm_(engine.trainable(), clip)
                    elif engine.reads_norm:
                        self.accelerator.unscale_gradients()
                        norm = gradient_norm(engine.gradients(), self.session.device)
                engine.optimizer.step()
                if self.accelerator.sync_gradients:
                    mark("end")
                engine.optimizer.zero_grad()
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
