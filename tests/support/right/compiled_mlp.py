"""An MLP by torch.compile."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

fast = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(fast(x), y).backward()
        optimizer.step()
