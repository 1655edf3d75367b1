"""Who calls forward, backward and the optimizer of an engine: PyTorch's plain loop, or a library's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.norms import clip
from perfsuite.rank.torch_types import GradScaler, LRScheduler, Module, Tensor
from perfsuite.rank.trainer import StepOutcome

if TYPE_CHECKING:
    from perfsuite.rank.native import LoopTrainer


class Loop:
    """Base of all loops. A loop has an engine, which says how the model is wrapped and what its gradients are."""

    def __init__(self, engine: LoopTrainer) -> None:
        self.engine = engine
        self.session = engine.session

    def prepare(self, model: Module) -> tuple[Module, Any]:
        """Wrap the model, and return what the forward goes through and the optimizer."""
        raise NotImplementedError

    def batch(self, step: int) -> list[MicroBatch]:
        """This rank's micro-batches of a step, on its device."""
        return make_batch(self.session, step)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        """One optimizer step: forward and backward of every micro-batch, then the optimizer."""
        raise NotImplementedError

    def check(self) -> dict[str, str | int]:
        """Prove that this loop runs, and return the evidence. Raises WrongEngine."""
        return {}


class PlainLoop(Loop):
    """The loop of the PyTorch documentation: GradScaler for fp16, gradients freed after every step."""

    scaler: GradScaler
    schedule: LRScheduler | None = None

    def prepare(self, model: Module) -> tuple[Module, Any]:
        module = self.engine.wrap(model)
        optimizer = self.engine.make_optimizer(module)
        self.scaler = self.engine.make_scaler()
        if self.session.recipe.schedule:
            self.schedule = self.session.recipe.schedule(optimizer)
        return module, optimizer

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        engine, session = self.engine, self.session
        with session.recipe.around():
            loss_sum = engine.forward_backward(batch, self.scaler.scale)
        engine.reduce_gradients()
        session.mark("optimizer")
        largest, norm = session.recipe.clip, None
        if largest or engine.reads_norm:
            self.scaler.unscale_(engine.optimizer)
            norm = engine.gradient_norm()
            if largest:
                clip(engine.gradients(), norm, largest)
        self.scaler.step(engine.optimizer)
        skipped = self.overflows()
        self.scaler.update()
        if self.schedule:
            self.schedule.step()
        session.mark("end")
        engine.optimizer.zero_grad(set_to_none=True)
        return StepOutcome(loss_sum, norm, skipped)

    def check(self) -> dict[str, str | int]:
        return {"schedule": type(self.schedule).__name__} if self.schedule else {}

    def overflows(self) -> list[Tensor]:
        """What the scaler found out about the gradients of this step and forgets in its update: not 0 is an overflow.
        To ask for the scale would wait for the device.
        """
        flags = self.scaler._found_inf_per_device(self.engine.optimizer) if self.session.recipe.loss_scaling else {}
        return list(flags.values())
