"""What a script tells its optimizers."""

import pytest
from small_scripts import measured

LOOP = """
import torch
model = torch.nn.Linear(8, 8)
{setup}
for _ in range(60):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
GROUPS = '[{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]'


def readings_of(folder, setup, after=""):
    """Of a script that makes this optimizer, and does that after each step."""
    found = measured(folder, LOOP.format(setup=setup, after=after))
    assert found.outcome == "fits", found.failure
    return found.readings


def told(folder, setup, after=""):
    """The facts of the script's optimizers."""
    return set(readings_of(folder, setup, after)["optimizer_settings"].parts)


@pytest.mark.parametrize(
    ("setup", "facts"),
    [
        (
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
            {"SGD: Linear.weight tensors 1", "SGD: lr 0.1", "SGD: momentum 0.9", "SGD: tensors 2", "SGD: elements 72"},
        ),
        (
            f"optimizer = torch.optim.AdamW({GROUPS}, lr=torch.tensor(0.5))",
            {
                *("AdamW group 0: lr 0.5", "AdamW group 0: weight_decay 0.1", "AdamW group 0: elements 64"),
                *("AdamW group 1: lr 0.5", "AdamW group 1: weight_decay 0", "AdamW group 1: Linear.bias tensors 1"),
                *("AdamW group 0: betas (0.9, 0.999)", "AdamW group 0: eps 1e-08", "AdamW group 0: tensors 1"),
            },
        ),
    ],
    ids=["one group", "two groups"],
)
def test_options_and_sizes_are_known(tmp_path, setup, facts):
    """Those that are on."""
    found = told(tmp_path, setup)

    assert facts <= found
    assert not any("foreach" in fact or "nesterov" in fact for fact in found)


SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=1.0)\nschedules = torch.optim.lr_scheduler\n"


def test_a_schedule_is_known_by_its_options_and_its_rates(tmp_path):
    """Those of all updates that both sides make; the options of a partial are those of the schedule."""
    setup = (
        f"{SGD}import functools\ndef rise(n, steps): return n / steps\n"
        "schedule = schedules.LambdaLR(optimizer, functools.partial(rise, steps=10))"
    )
    found = readings_of(tmp_path, setup, "schedule.step()")
    facts, rates = found["optimizer_settings"].parts, found["learning_rates"].series["SGD"]

    assert {"schedule LambdaLR", "LambdaLR: lr_lambdas (rise(steps=10))"} <= facts.keys()
    assert "SGD: lr 0, 0.1, 0.2 in the first updates" in facts
    assert len(rates) > 8
    assert rates == pytest.approx([number / 10 for number in range(len(rates))])


def test_a_schedule_of_schedules_is_known(tmp_path):
    """And those that it has. Not each of them calls its base's constructor."""
    setup = (
        f"{SGD}first = schedules.LinearLR(optimizer, total_iters=4)\n"
        "second = schedules.CosineAnnealingLR(optimizer, 9)\n"
        "schedule = schedules.SequentialLR(optimizer, [first, second], milestones=[4])\n"
        "other = schedules.ReduceLROnPlateau(optimizer, factor=0.5)"
    )
    facts = told(tmp_path, setup, "schedule.step()")

    assert {"schedule LinearLR", "schedule CosineAnnealingLR", "schedule SequentialLR"} <= facts
    assert {"LinearLR: total_iters 4", "CosineAnnealingLR: T_max 9", "ReduceLROnPlateau: factor 0.5"} <= facts
