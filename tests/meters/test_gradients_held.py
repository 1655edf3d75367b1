"""Gradients of the steps before count if a backward adds to them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.meters.own_lines import OwnLines
from perfsuite.records.step_kinds import StepKind

Step = Callable[[Any, Any], None]


def adds(weight: Any, phase: Any) -> None:
    """Nothing clears them."""
    phase("backward")
    (weight * 2).sum().backward()
    phase("other")


def clears(weight: Any, phase: Any) -> None:
    """As most scripts do."""
    weight.grad = None
    adds(weight, phase)


def replaces(weight: Any, phase: Any) -> None:
    """By the mean over replicas, whose backwards add nothing to it."""
    replica = weight.detach().clone().requires_grad_()
    adds(replica, phase)
    weight.grad = replica.grad / 2


def zeroes(weight: Any, phase: Any) -> None:
    """And keeps them."""
    weight.grad.zero_()
    adds(weight, phase)


def accumulates(weight: Any, phase: Any) -> None:
    """The second backward adds to what the first one has made."""
    clears(weight, phase)
    adds(weight, phase)


@pytest.mark.parametrize(
    ("step", "held"),
    [
        (adds, [(True, 12)]),
        (clears, [(False, 0)]),
        (replaces, []),
        (zeroes, [(False, 12)]),
        (accumulates, [(False, 0)]),
    ],
)
def test_gradients_of_the_steps_before(step: Step, held: list[tuple[bool, int]]) -> None:
    """Their bytes, and whether they are summed."""
    import torch  # at the top it would take each worker of the tests a second

    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    meter = OwnLines.__new__(OwnLines)
    vars(meter).update(kind=StepKind.WARMUP, held={}, begun=None, has_begun=False)
    vars(meter).update(trainer=SimpleNamespace(optimized=lambda: iter([weight])))
    vars(meter).update(session=SimpleNamespace(emulated=False))
    step(weight, meter._mark)

    assert [(one.is_summed, one.size) for one in meter.held.values()] == held
