"""Numbers of a training that are wrong, and the data that it reads."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from perfsuite.rank.faults import at

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def nan(session: Session, trainer: Any, meters: Any) -> None:
    """A weight of rank 0 becomes NaN in step 3."""

    def poison() -> None:
        import torch

        with torch.no_grad():
            next(iter(trainer.model.parameters())).fill_(float("nan"))

    at(session, "forward", 3, poison, rank=0)


def infinite_loss(session: Session, trainer: Any, meters: Any) -> None:
    """The loss overflows."""
    _tell(trainer, loss=float("inf"))


def loss_off(session: Session, trainer: Any, meters: Any) -> None:
    """The loss is 0.05 % too large; nothing else differs."""
    _tell(trainer, loss=1.0005)


def norm_off(session: Session, trainer: Any, meters: Any) -> None:
    """The gradient norm is 1 % too large; nothing else differs."""
    _tell(trainer, gradient_norm=1.01)


def update_off(session: Session, trainer: Any, meters: Any) -> None:
    """Gradients are 1 % too large after their norm is read. Adam divides them by their size, so it hides this."""

    def enlarge(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(1.01)

    trainer.optimizer.register_step_pre_hook(enlarge)


def _tell(trainer: Any, **factors: float) -> None:
    """From now on a step's loss or gradient norm, if it has one, is reported as multiplied by these factors."""
    step = trainer.step

    def falsified(batch: Any) -> Any:
        outcome = step(batch)
        known = {name: getattr(outcome, name) for name in factors}
        scaled = {name: value * factors[name] for name, value in known.items() if value is not None}
        return dataclasses.replace(outcome, **scaled)

    trainer.step = falsified


def data_shifted(session: Session, trainer: Any, meters: Any) -> None:
    """Every step trains on the batch of the next step."""
    make = trainer.batch
    trainer.batch = lambda number: make(number + 1)


def half_batch(session: Session, trainer: Any, meters: Any) -> None:
    """Half of the samples do not reach the model."""
    make = trainer.batch

    def halved(number: int) -> Any:
        return [
            dataclasses.replace(part, inputs={name: rows[: len(rows) // 2] for name, rows in part.named.items()})
            for part in make(number)
        ]

    trainer.batch = halved
