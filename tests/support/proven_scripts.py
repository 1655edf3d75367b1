"""Right training scripts, into which tests of ``perfsuite prove`` put one fault each."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TORCHRUN = ("torchrun", "--nproc-per-node=2")
HALF = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 32)
    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + self.body(x)))
model = Net()
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for x, y in loader:
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    scaler.step(optimizer)
    scaler.update()
"""
SINGLE = HALF.replace("torch.float16", "torch.float16, enabled=False").replace('"cpu")', '"cpu", enabled=False)', 1)
DDP = """
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 32))
model = nn.parallel.DistributedDataParallel(net)
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
"""
Fault = tuple[Any, ...]


def prove(folder: Path, text: str, only: str, launcher: Sequence[str] = ("python",), words: Sequence[str] = ()) -> Any:
    """The status of the command, and what it prints."""
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "perfsuite.cli.main", "prove", f"--only={only}", "--", *launcher, "train.py"]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, env=os.environ)
    return done.returncode, done.stdout + done.stderr


def edited(text: str, *edits: tuple[str, str]) -> str:
    """With the edits, each of which must be possible at one place."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def always_one(faults: Sequence[Fault]) -> list[Any]:
    """Of each relation, which a fault names first, the first fault runs always."""
    known: set[str] = set()
    found = []
    for one in faults:
        found.append(pytest.param(*one, marks=[pytest.mark.slow] if one[0] in known else []))
        known.add(one[0])
    return found
