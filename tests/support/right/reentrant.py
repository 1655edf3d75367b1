"""Blocks with dropout under reentrant recomputation."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)
        )
        self.last = nn.Linear(32, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=True)
        return self.last(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
for _ in range(3):
    for x, y in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
