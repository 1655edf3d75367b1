"""One rank that holds everything: the reference that every other engine must agree with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfsuite.catalog.definitions import Engine
from perfsuite.errors import WrongEngine
from perfsuite.training.trainer import MicroBatch, StepOutcome, Trainer

if TYPE_CHECKING:
    import torch

    from perfsuite.training.session import Session


class Single(Trainer):
    """A plain PyTorch loop: autocast for low precision, GradScaler for fp16, gradients freed after every step."""

    def __init__(self, session: Session, model: torch.nn.Module) -> None:
        import torch

        super().__init__(session, model)
        self.module = self.wrap(model)
        self.optimizer = session.recipe.optimizer(model.parameters(), session.recipe.learning_rate)
        self.scaler = torch.amp.GradScaler(session.job.device, enabled=session.recipe.loss_scaling)

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """What the forward goes through."""
        return model

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        """Around the backward of every micro-batch but the last."""
        return contextlib.nullcontext()

    def check(self) -> dict[str, str | int]:
        if self.session.world_size != 1 or self.module is not self.model:
            raise WrongEngine(f"single must be one unwrapped rank, this is {type(self.module).__name__}.")
        return {"module": type(self.module).__name__, "optimizer": type(self.optimizer).__name__}

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        recipe, mark = self.session.recipe, self.session.mark
        device, dtype = self.session.job.device, self.session.compute_dtype
        loss_sum = torch.zeros((), device=self.session.device)
        for number, micro_batch in enumerate(batch):
            last = number == len(batch) - 1
            with contextlib.nullcontext() if last else self.accumulating():
                mark("forward")
                with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
                    output = self.module(**micro_batch.inputs)
                loss = output.loss * (micro_batch.weight / recipe.accumulation)
                loss_sum += loss.detach()
                del output
                mark("backward")
                self.scaler.scale(loss).backward()
                del loss
        mark("optimizer")
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        skipped = recipe.loss_scaling and self.scaler.get_scale() < scale
        mark("end")
        self.optimizer.zero_grad(set_to_none=True)
        return StepOutcome(loss_sum, norm, skipped)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for parameter in self.model.parameters():
            yield "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for buffer in self.model.buffers():
            yield "parameters", buffer
        for state in self.optimizer.state.values():
            for value in state.values():
                if hasattr(value, "untyped_storage"):
                    yield "optimizer_state", value


ENGINES = (
    Engine(
        name="single",
        trainer=Single,
        max_ranks=1,
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)
