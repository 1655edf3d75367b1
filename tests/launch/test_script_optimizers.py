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


def told(folder, setup, after=""):
    """The facts of the script's optimizers."""
    found = measured(folder, LOOP.format(setup=setup, after=after))
    assert found.outcome == "fits", found.failure
    return set(found.readings["optimizer_settings"].parts)


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


def test_a_schedule_is_in_the_first_updates(tmp_path):
    """Later ones are not read: how many a launch makes is a setting."""
    setup = (
        "optimizer = torch.optim.SGD(model.parameters(), lr=1.0)\n"
        "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n / 10)"
    )

    assert "SGD: lr 0, 0.1, 0.2 in the first updates" in told(tmp_path, setup, "schedule.step()")
