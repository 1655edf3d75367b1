"""Updates of scripts that have no optimizer of torch's, and modules with a call of their own."""

from types import SimpleNamespace
from typing import Any

import pytest
from small_scripts import measured

from perfsuite.rank.script import own_updates
from perfsuite.rank.script.own_updates import OwnUpdates


def weight(gradient=None):
    return SimpleNamespace(requires_grad=True, _version=0, grad=gradient)


def changed_in_place(one):
    one._version += 1


def cleared(one):
    one.grad = None


def cleared_to_zero(one):
    one.grad._version += 1


def nothing(one):
    """As between two micro-batches."""


@pytest.mark.parametrize("act", [changed_in_place, cleared, cleared_to_zero, nothing])
def test_an_update_changes_weights_or_clears_gradients(act):
    """Once for each: also after a backward that adds to what is there."""
    updates, one = OwnUpdates(), weight(SimpleNamespace(_version=0))
    modules: list[Any] = [SimpleNamespace(parameters=lambda: [one])]
    updates.called(modules)
    before = updates.made(modules)
    updates.differentiated(modules)
    act(one)

    assert (before, updates.made(modules), updates.made(modules)) == (False, act is not nothing, False)


def test_a_module_that_joins_is_no_update():
    """Its weights were not known before, such as those of a loss."""
    updates, ones = OwnUpdates(), [weight()]
    modules: list[Any] = [SimpleNamespace(parameters=lambda: ones)]
    updates.called(modules)
    ones.append(weight())
    updates.differentiated(modules)

    assert not updates.made(modules)


def test_an_update_that_torch_does_not_tell_comes_after_as_many_backwards(monkeypatch):
    """In the step whose operators are counted: such as a foreach operator, which writes no version there."""
    monkeypatch.setattr(own_updates, "are_operators_counted", lambda: True)
    updates, one, made = OwnUpdates(), weight(SimpleNamespace(_version=0)), []
    modules: list[Any] = [SimpleNamespace(parameters=lambda: [one])]
    for number in range(1, 7):
        updates.called(modules)
        made.append(updates.made(modules))
        updates.differentiated(modules)
        if number == 2:
            changed_in_place(one)

    assert made == [False, False, True, False, True, False]


OWN = """
import torch

class Own(torch.nn.Module):
    def __call__(self, given):
        return self.forward(given)

class Model(Own):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 8))

    def forward(self, given):
        return given @ self.weight

model = Model()
for number in range(80):
    for part in range(2):
        loss = model(torch.rand(4, 8)).sum()
        if part == 0:
            model.zero_grad()
        loss.backward()
    torch.no_grad()(torch._foreach_add_)([*model.parameters()], [one.grad for one in model.parameters()], alpha=-0.1)
"""


def test_a_step_ends_where_the_script_updates_by_itself(tmp_path):
    """Each of two micro-batches, whose forward is what its own class calls. Gradients are cleared after the first."""
    readings = measured(tmp_path, OWN).readings

    assert readings["parameters_bytes"].value == 4 * 8 * 8
    assert readings["operators"].parts["forward"] == 2
    assert readings["model_flop"].value == 2 * 2 * (2 * 4 * 8 * 8)  # two products of each
