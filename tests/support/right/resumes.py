"""An MLP that saves after each epoch, and resumes by an option."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

parser = argparse.ArgumentParser()
parser.add_argument("--resume-from", default="")
options = parser.parse_args()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
start = 0
if options.resume_from:
    state = torch.load(options.resume_from, weights_only=False)
    model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"]), torch.set_rng_state(state["random"])
    start = state["epoch"] + 1
for epoch in range(start, 6):
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    schedule.step()
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    torch.save(
        {name: one.state_dict() for name, one in parts.items()} | {"random": torch.get_rng_state(), "epoch": epoch},
        "last.pt",
    )
