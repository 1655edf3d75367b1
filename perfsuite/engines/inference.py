"""Inference: the cost of using a trained model. Dropout is off and no gradient is recorded.

bf16 and fp16 are autocast over fp32 weights, as everywhere. Every rank is a replica with its own data; nothing is
communicated.
"""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.greedy_generation import generate, new_tokens, prompts
from perfsuite.rank.norms import local
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer


class Forward(Trainer):
    """One forward with labels, so that the loss shows whether it is right."""

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        model.eval()

    def check(self) -> dict[str, str | int]:
        if any(module.training for module in self.model.modules()):
            raise WrongEngine(f"{type(self.model).__name__} must be in eval mode, but it is in training mode.")
        graded = sum(parameter.grad is not None for parameter in self.model.parameters())
        if graded:
            raise WrongEngine(f"Inference must leave no gradients, but {graded} parameters have one.")
        return {"module": type(self.model).__name__, "mode": "eval"}

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        loss_sum = torch.zeros((), device=self.session.device)
        for micro_batch in batch:
            self.session.mark("forward")
            with torch.no_grad(), self.autocast():
                loss = self.infer(micro_batch)
            if loss.requires_grad:
                raise WrongEngine("Inference must record no graph, but its loss has one.")
            loss_sum += loss * (micro_batch.weight / len(batch))
        self.session.mark("end")
        return StepOutcome(loss_sum)

    def infer(self, micro_batch: MicroBatch) -> Tensor:
        """One micro-batch; returns its loss."""
        return micro_batch.loss(self.model)

    def traffic(self) -> dict[str, int]:
        return {}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from (("parameters", local(parameter)) for parameter in self.model.parameters())
        yield from (("parameters", local(buffer)) for buffer in self.model.buffers())

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return ((parameter, None) for parameter in self.model.parameters())


class Generate(Forward):
    """transformers' ``generate``, greedy; its loss is the mean negative log-likelihood of its tokens."""

    def batch(self, step: int) -> list[MicroBatch]:
        return prompts(self.session, step)

    @property
    def new_tokens(self) -> int:
        """Per sample."""
        return new_tokens(self.session.job.workload)

    def check(self) -> dict[str, str | int]:
        return super().check() | {"new_tokens": self.new_tokens}

    def infer(self, micro_batch: MicroBatch) -> Tensor:
        return generate(self.model, micro_batch.named, self.new_tokens)


def why_not_generate(proposal: Proposal) -> str:
    """Only language models generate."""
    if proposal.model.task == "sequence_classification":
        return f"{proposal.model.name} is a classifier, so it has no next token to generate."
    return "" if proposal.model.task else f"{proposal.model.name} has batches of its own, which are no prompts."


NO_DROPOUT = {"nodrop": "in eval mode there is no dropout anyway"}

ENGINES = (
    Engine(
        name="forward",
        process="inference",
        trainer=Forward,
        refuses=NO_DROPOUT,
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#no-grad-mode",
    ),
    Engine(
        name="generate",
        process="inference",
        trainer=Generate,
        refuses=NO_DROPOUT,
        why_not=why_not_generate,
        source="https://huggingface.co/docs/transformers/main_classes/text_generation",
    ),
)
