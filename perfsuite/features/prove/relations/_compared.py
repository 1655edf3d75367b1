"""Compares the gradients of two ways to run a script that must have the same ones."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.features.prove.relation import CannotTry, Remark
from perfsuite.records.gradients import Gradients, StepGradients

STEPS = 2  # whose gradients are compared; the weights stay
ALLOWED = 1e-4  # of the gradient's norm, in float32; sums in another order differ by a hundredth of that
EPSILONS = 3  # the same for coarser numbers
DOUBTS = {  # why gradients may differ although training is right, or cannot be compared
    "steps": "the script made fewer than two optimizer steps: let it train longer",
    "weights": "the weights differ at the start: set a seed before the model is built",
    "rows": "the steps have different rows: set a seed for their order, draw no random numbers per batch, and mask "
    "padding by an attention_mask",
    "random": "the model draws random numbers in its forward",
    "batch_norm": "BatchNorm uses the statistics of each micro-batch",
    "values": "a gradient is zero or not finite",
    "dropout": "dropout was taken out",
}


@dataclass(frozen=True)
class Compared:
    """``difference`` and ``allowed`` are shares of the gradient's norm, ``worst`` the parameter that differs most, and
    ``norms`` those of the first step. ``doubts`` are names of DOUBTS.
    """

    difference: float
    allowed: float
    worst: str
    norms: tuple[float, float]
    doubts: list[str]

    @property
    def agree(self) -> bool:
        """Whether rounding explains the difference."""
        return self.difference <= self.allowed


def compared(one: Sequence[Gradients], other: Sequence[Gradients]) -> Compared:
    """Of the ranks' gradients, where both ways have as many ranks. Raises CannotTry if a way made too few steps."""
    if any(len(rank.steps) < STEPS for rank in (*one, *other)):
        raise CannotTry(Remark(what="steps"))
    pairs = [two for mine, its in zip(one, other, strict=True) for two in zip(mine.steps, its.steps, strict=False)]
    difference, worst = max(_difference(mine, its) for mine, its in pairs)
    return Compared(
        difference=difference,
        allowed=max(ALLOWED, *(EPSILONS * rank.epsilon for rank in (*one, *other))),
        worst=worst,
        norms=(norm(one[0].steps[0]), norm(other[0].steps[0])),
        doubts=list(_doubts(one, other)),
    )


def norm(step: StepGradients) -> float:
    """The 2-norm of the whole gradient; infinite if a part is not finite."""
    return math.hypot(*(math.inf if value is None else value for value in step.norms.values()))


def _difference(one: StepGradients, other: StepGradients) -> tuple[float, str]:
    """The distance of two gradients is at least that of their parameters' norms. As a share, and which differs most."""
    names = dict.fromkeys([*one.norms, *other.norms])
    apart = {name: abs((one.norms.get(name) or 0.0) - (other.norms.get(name) or 0.0)) for name in names}
    size = math.hypot(*(value or 0.0 for value in one.norms.values()))
    return (math.hypot(*apart.values()) / size if size else 0.0), max(apart, key=lambda name: apart[name], default="")


def _doubts(one: Sequence[Gradients], other: Sequence[Gradients]) -> list[str]:
    ranks = (*one, *other)
    found = []
    if any(mine.weights != its.weights for mine, its in zip(one, other, strict=True)):
        found.append("weights")
    if any(rank.random for rank in ranks):
        found.append("random")
    if any(rank.batch_norm for rank in ranks):
        found.append("batch_norm")
    if not all(0 < norm(step) < math.inf for rank in ranks for step in rank.steps):
        found.append("values")
    return found


def same_rows(one: Sequence[Gradients], other: Sequence[Gradients]) -> bool:
    """Whether all ranks together had the same rows in each step."""
    return all(_rows(one, step) == _rows(other, step) and bool(_rows(one, step)) for step in range(STEPS))


def _rows(ranks: Sequence[Gradients], step: int) -> Counter[str]:
    return Counter(row for rank in ranks for row in rank.steps[step].rows)
