"""The interface of an engine in a rank. Nothing here imports torch: the parent reads engine files too."""

import contextlib
import dataclasses
import math
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.errors import RankError
from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.norms import whole, with_storage
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.records.step_kinds import READS_NORM, StepKind


@dataclass(frozen=True)
class StepOutcome:
    """Of one optimizer step: this rank's share of the loss (the mean over ranks is the loss) and the gradient norm.

    Both stay tensors, or numbers if the engine has them, so that a step never waits for them. Inference has no
    gradient norm, communication has neither. ``skipped`` means that fp16 gradients overflowed and the optimizer did
    not step: a flag, or tensors, any of which may be nonzero. ``samples`` and ``tokens`` are what a script's batches
    tell: 0 is unknown. ``labels`` are those that are trained, and None is unknown. ``new_tokens`` are those that it has
    generated, and ``unused`` ones are padding in all rows of a batch.
    """

    loss: Tensor | float | None = None
    gradient_norm: Tensor | float | None = None
    skipped: bool | Tensor | Sequence[Tensor] = False
    samples: int = 0
    tokens: int = 0
    labels: int | None = None
    new_tokens: int = 0
    unused: int | None = None

    def finite_loss(self, step: int) -> float | None:
        """The loss as a number; None if it has none. Raises RankError for one that is not finite, in that step."""
        loss = None if self.loss is None else float(self.loss)
        if loss is not None and not math.isfinite(loss):
            raise RankError(f"The loss is {loss} in step {step}.")
        return loss


class Trainer:
    """Base of all engines. The constructor prepares ``model`` for training; ``session.mark(phase)`` must be called
    when each forward, backward and optimizer phase begins.

    ``reads_norm`` says whether the next step computes a gradient norm that its recipe does not need: those of
    ``norm_kinds`` do. A timed step does not: only the library's own work is timed. ``batch_in_step`` says whether a
    step makes its own batch. ``loop`` is what a technique brought to make the steps, None for the
    engine's own. ``opaque`` says why torch does not see the operators of a step, and is empty if it does.
    """

    reads_norm = True
    norm_kinds: Collection[StepKind] = READS_NORM
    batch_in_step = False
    loop: object = None
    opaque = ""

    def __init__(self, session: Session, model: Module) -> None:
        self.session = session
        self.model = model

    @property
    def recomputing(self) -> bool:
        """Whether a forward runs inside of a backward, as it does with checkpointing."""
        import torch

        return torch.is_grad_enabled() and torch._C._current_autograd_node() is not None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Around every forward."""
        import torch

        dtype = self.session.compute_dtype
        enabled = dtype != torch.float32 and not self.session.recipe.pure
        return torch.autocast(self.session.job.device, dtype=dtype, enabled=enabled)

    def batch(self, step: int) -> list[MicroBatch]:
        """This rank's micro-batches of a step, on its device."""
        return make_batch(self.session, step)

    def check(self) -> dict[str, str | int]:
        """Prove that this is the named engine, and return the evidence. Raises WrongEngine."""
        raise NotImplementedError

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        """One optimizer step: forward and backward of every micro-batch, then the optimizer."""
        raise NotImplementedError

    def make_steps(self, batches: Sequence[list[MicroBatch]]) -> Generator[None, bool, list[StepOutcome]]:
        """Make the steps of these batches. A ``yield`` waits for a step that somebody else makes, and gets whether the
        optimizer skipped it.
        """
        yield from ()
        return [self.step(batch) for batch in batches]

    def finished(self, outcome: StepOutcome) -> StepOutcome:
        """The outcome with perfsuite's own reads, which are made after the clock: ``skipped`` becomes a flag."""
        skipped = outcome.skipped if isinstance(outcome.skipped, list) else [outcome.skipped]
        return dataclasses.replace(outcome, skipped=any(map(bool, skipped)))

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        """Evaluate one batch without gradients, so that training can continue; returns its loss."""
        raise NotImplementedError

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every (category, tensor) on this rank at this moment: parameters, gradients, optimizer state, …

        An optimizer's state may have numbers that are no tensors.
        """
        raise NotImplementedError

    def storages(self) -> Iterator[tuple[str, Tensor]]:
        """What keeps the numbers of these on this rank, as plain tensors."""
        import torch

        for category, tensor in self.tensors():
            if isinstance(tensor, torch.Tensor):
                yield from ((category, part) for part in with_storage(tensor))

    def batch_tensors(self) -> Iterator[Tensor]:
        """Those of the last batch that are still alive, if torch may have no memory of its own for them."""
        return iter(())

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters in which this rank has a part, whole, by their names in the model as it was built.

        Collective: all ranks read all, one by one, and a tensor is valid until the next.
        """
        for name, parameter in self.model.named_parameters():
            yield name, whole(parameter, self.session.device)

    def traffic(self) -> Mapping[str, int] | None:
        """The theory of a step's communication: bytes of this rank's messages by collective, in the meter's terms.

        None if there is no theory. Scalars (loss, norm, overflow flags) are left out.
        """
        return None

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        """Tensors that must be equal on other ranks after every step, each with the process group of those ranks (None:
        all). Empty if nothing is replicated; a tensor may have several groups.
        """
        return iter(())
