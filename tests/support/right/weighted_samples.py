"""Samples of other weights, and a schedule by the loss of an evaluation."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y, weight = torch.randn(96, 16), torch.randint(0, 4, (96,)), torch.rand(96)
sampler = torch.utils.data.WeightedRandomSampler(weight, 96)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for _ in range(4):
    model.train()
    for a, b, w in DataLoader(TensorDataset(x, y, weight), 8, sampler=sampler):
        loss = (functional.cross_entropy(model(a), b, reduction="none") * w).sum() / w.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        schedule.step(functional.cross_entropy(model(x), y))
