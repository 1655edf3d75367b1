"""What of a script the measured steps show, and why a number is missing."""

import pytest
from small_scripts import START, measured

ROLLOUT = """
import time
for turn in range(5):
    with torch.no_grad():
        model(torch.randn(4, 8))
    time.sleep({seconds})
    for update in range(30): step()
"""
SPARSE = """
weight = nn.Parameter(torch.randn(50, 4))
model.register_parameter("other", weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.eye(50).to_sparse{kind}()
for _ in range(40):
    optimizer.zero_grad(); torch.sparse.mm(rows, weight).sum().backward(); optimizer.step()
"""


def test_a_rollout_before_many_updates_is_not_covered(tmp_path):
    """It is in the first iteration, and each update looks like a step."""
    found = measured(tmp_path, START + ROLLOUT.format(seconds=1)).readings["covered_share"]

    assert found.value < 0.5
    assert found.phases["the first iteration"] > 0.5


def test_a_rate_that_is_missing_has_a_reason(tmp_path):
    """The script reads no DataLoader."""
    found = measured(tmp_path, f"{START}\nfor _ in range(40): step()")

    assert "DataLoader" in found.uncounted["step_samples_per_second"]
    assert "tokens" not in found.uncounted


@pytest.mark.parametrize("kind", ["", "_csr"])
def test_a_sparse_product_has_the_elements_that_are_there(tmp_path, kind):
    """50 of 2,500, in forward and in backward."""
    found = measured(tmp_path, START + SPARSE.format(kind=kind))

    assert found.readings["model_flop"].value == 2 * 2 * 50 * 4


EVALUATES = """
import time
for epoch in range(6):
    for update in range(5): step()
    model.eval()
    with torch.no_grad():
        for _ in range(40): model(torch.randn(20000, 8))
    model.train()
time.sleep(0.5)
"""


def test_the_wall_time_is_split(cold, tmp_path):
    """The shares add up to all of it. What evaluates between steps is named, and so is what comes after the last."""
    found = measured(tmp_path, START + EVALUATES).readings["steps_share"]

    assert found.value + sum(found.phases.values()) == pytest.approx(1)
    assert found.phases["evaluation"] > found.value
    assert {"imports", "set-up of data and model", "after the last step"} <= found.phases.keys()
    assert min(found.phases.values()) >= 0
