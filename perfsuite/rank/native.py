"""What all native engines share, with a place for everything in which they differ. A loop makes their steps."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.greedy_generation import generate, without_labels
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.plain_loop import Loop, PlainLoop
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Optimizer, Parameter, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer

EVALUATED_TOKENS = 8  # new tokens per sample, in a sequence-to-sequence model's evaluation


class LoopTrainer(Trainer):
    """An engine that any loop can step: autocast for low precision, gradients that stay with their parameters."""

    module: Module
    optimizer: Optimizer

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        self.loop: Loop = (session.strategy.loop or PlainLoop)(self)
        self.module, self.optimizer = self.loop.prepare(model)

    def wrap(self, model: Module) -> Module:
        """The module that the forward calls."""
        return model

    def make_optimizer(self, module: Module) -> Any:
        """The recipe's optimizer of the parameters as this rank keeps them between steps, such as its shards; called
        once, when the model is wrapped: after the first forward, gathered ones may replace them.
        """
        self.parameters = list(module.parameters())
        return self.session.recipe.optimizer(self.parameter_groups(module), self.session.recipe.learning_rate)

    def trainable(self) -> list[Parameter]:
        """The parameters that the optimizer updates."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    def parameter_groups(self, module: Module) -> list[dict[str, Any]]:
        """Separate groups by mesh, and one for plain parameters: torch's foreach optimizers refuse mixed lists. And by
        the options that the recipe's optimizer has for some of them.
        """
        kinds = self.session.recipe.kinds
        kind_of = kinds(module) if kinds else lambda _: {}
        groups: dict[Any, dict[str, Any]] = {}
        for parameter in self.trainable():
            options = kind_of(parameter)
            key = getattr(parameter, "device_mesh", None), *options.values()
            groups.setdefault(key, {"params": [], **options})["params"].append(parameter)
        return list(groups.values())

    def make_scaler(self) -> Any:
        """Scales the loss of fp16."""
        import torch

        return torch.amp.GradScaler(self.session.job.device, enabled=self.session.recipe.loss_scaling)

    def accumulating(self) -> contextlib.AbstractContextManager[None]:
        """Around forward and backward of every micro-batch except the last."""
        return contextlib.nullcontext()

    def forward_backward(self, batch: list[MicroBatch], scale: Callable[[Any], Any]) -> Tensor:
        """Forward and backward of all micro-batches, of the scaled loss; returns this rank's share of the loss."""
        import torch

        session = self.session
        loss_sum = torch.zeros((), device=session.device)
        for number, micro_batch in enumerate(batch):
            last = number == len(batch) - 1
            with contextlib.nullcontext() if last else self.accumulating():
                session.mark("forward")
                with self.autocast():
                    mean = micro_batch.loss(self.module)
                loss = mean * (micro_batch.weight / len(batch))
                loss_sum += loss.detach()
                del mean
                session.mark("backward")
                scale(loss).backward()
                del loss
        return loss_sum

    def reduce_gradients(self) -> None:
        """Reduce the remaining gradients over the ranks after the last backward."""

    def gradients(self) -> list[Tensor]:
        """All existing gradients, as the engine keeps them."""
        return [parameter.grad for parameter in self.trainable() if parameter.grad is not None]

    def gradient_norm(self) -> Tensor:
        """The norm of the whole model's gradient."""
        return gradient_norm(self.gradients(), self.session.device)

    def batch(self, step: int) -> list[MicroBatch]:
        return self.loop.batch(step)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        return self.loop.step(batch)

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        return evaluate(self, self.module, batch)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for parameter in self.parameters:
            yield "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for buffer in self.model.buffers():
            yield "parameters", buffer
        for state in self.optimizer.state.values():
            yield from (("optimizer_state", value) for value in state.values())

    def evidence(self, **more: str | int) -> dict[str, str | int]:
        """What ``check`` returns: who really ran."""
        names = {"module": type(self.module).__name__, "optimizer": type(self.optimizer).__name__}
        return {**names, **more, **self.loop.check()}


def evaluate(trainer: Any, module: Module, batch: list[MicroBatch]) -> Any:
    """This rank's share of the loss in eval mode; a sequence-to-sequence model then also generates some tokens, as with
    ``predict_with_generate``. An optimizer may evaluate other weights than it trains.
    """
    import torch

    module.eval()
    getattr(trainer.optimizer, "eval", lambda: None)()
    loss_sum = torch.zeros((), device=trainer.session.device)
    with torch.no_grad(), trainer.autocast():
        for micro_batch in batch:
            loss_sum += micro_batch.loss(module) * (micro_batch.weight / len(batch))
            if trainer.session.job.model.task == "seq2seq_lm":
                generate(trainer.model, without_labels(micro_batch.named), EVALUATED_TOKENS)
    getattr(trainer.optimizer, "train", lambda: None)()
    module.train()
    return loss_sum
