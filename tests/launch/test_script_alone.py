"""What one rank of a script does alone, and what a script does in some steps alone."""

import pytest
from small_scripts import START, measured

DDP = """
import io, logging, os, torch, time
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
plain = nn.Linear(8, 8)
model = DistributedDataParallel(plain)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for number in range(60):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        {alone}
"""
ALONE = {
    "saves": "torch.save(plain.state_dict(), 'one.pt')",
    "evaluates at times": "number % 4 or torch.no_grad()(plain)(torch.randn(4, 8))",
    "reads data": "next(iter(torch.utils.data.DataLoader([1.0, 2.0])))",
    "prints and writes a file": "print(loss.item()); open('log.txt', 'a').write(f'{loss.item()} ')",
}


@pytest.mark.parametrize("alone", ALONE)
def test_what_one_rank_does_alone_is_measured(tmp_path, alone):
    """Each such script is measured, and no number is missing on the other rank."""
    found = measured(tmp_path, DDP.format(alone=ALONE[alone]), "torchrun --nproc-per-node 2", 2)

    assert found.outcome == "fits", found.failure
    assert len(found.readings["peak_memory_bytes"].ranks) == 2
    if "saves" in alone:
        assert found.readings["checkpoint_bytes"].ranks == [found.readings["checkpoint_bytes"].value, 0]
        assert found.readings["save_stall_seconds"].ranks[1] == 0


TWO = """
critic = nn.Linear(8, 1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
loader = iter(torch.utils.data.DataLoader(torch.randn(400, 8), batch_size=4))
for number in range(60):
    batch = next(loader)
    step()
    loss = critic(batch).mean()
    second.zero_grad()
    loss.backward()
    second.step()
    if number % 14 == 0:
        critic(torch.randn(4, 8))
"""


def test_a_rare_extra_is_no_part_of_the_period(tmp_path):
    """It is shown apart: two optimizers, and a sample after the second one's step every 14th time."""
    found = measured(tmp_path, START + TWO)

    assert found.outcome == "fits", found.failure
    assert found.readings["extra_steps"].parts == {"forward": 1}
