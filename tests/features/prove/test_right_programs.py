"""``perfsuite prove`` calls right programs right: those of tests/support/right, and rare ways to train at once."""

from pathlib import Path

import pytest
from proven_scripts import TORCHRUN, prove

RIGHT = sorted((Path(__file__).parents[2] / "support" / "right").glob("*.py"))
RARE = """
from collections import OrderedDict
import torch
from torch import nn
from torch.func import functional_call, grad
torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 4))
critic = nn.Sequential(OrderedDict(value=nn.Linear(8, 1)))
scale = nn.Linear(8, 1)
acts, values = torch.optim.AdamW(actor.parameters(), 1e-2), torch.optim.AdamW(critic.parameters(), 1e-2)
scales = torch.optim.SGD(scale.parameters(), 1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(values, total_iters=20)
def loss_of(parameters, x):
    return functional_call(scale, parameters, (x,)).square().mean()
for step in range(24):
    x = torch.randn(8, 8)
    with torch.no_grad():  # in each step, so it is a part of training
        actor(x)
    acts.zero_grad()
    actor(x).square().mean().backward()
    acts.step()
    for _ in range(3):
        values.zero_grad()
        critic(x).square().mean().backward()
        values.step()
        schedule.step()
    gradients = grad(loss_of)({name: one.detach() for name, one in scale.named_parameters()}, x)
    for name, parameter in scale.named_parameters():
        parameter.grad = gradients[name]
    scales.step()
    if step % 8 == 7:
        actor.eval()
        with torch.no_grad():
            actor(torch.randn(8, 8))
        actor.train()
        actor[1].eval()  # frozen from here on
"""


def test_rare_ways_to_train_break_nothing(tmp_path):
    """A critic with more updates, a norm that is frozen later, a forward without gradients, gradients by torch.func."""
    status, text = prove(tmp_path, RARE, "trained,schedule,modes")

    assert (status, text.count("holds")) == (0, 3), text


@pytest.mark.slow
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_breaks_nothing(tmp_path, path):
    """Of no relation."""
    text = path.read_text()
    distributed = "init_process_group" in text or "import Accelerator" in text
    _, said = prove(tmp_path, text, "", TORCHRUN if distributed else ("python",))

    assert "holds" in said and "BROKEN" not in said, said
