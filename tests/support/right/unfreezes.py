"""A body that trains from the third epoch on, and early stopping."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
body, head = model[:2], model[3]
body.requires_grad_(False)
optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
best, patience = float("inf"), 0
for epoch in range(6):
    model.train()
    if epoch < 2:
        body.eval()
    if epoch == 2:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 1e-4})
    for x, y in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = sum(functional.cross_entropy(model(x), y).item() for x, y in DataLoader(data, 32))
    patience = 0 if loss < best else patience + 1
    best = min(best, loss)
    if patience == 2:
        break
