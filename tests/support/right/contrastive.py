"""Two encoders by a contrastive loss, whose temperature is clamped by hand."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 16))
one, two = nn.Linear(16, 8), nn.Linear(16, 8)
temperature = nn.Parameter(torch.tensor(1.0))
optimizer = torch.optim.AdamW([*one.parameters(), *two.parameters(), temperature], 1e-3)
for _ in range(3):
    for (x,) in DataLoader(data, batch_size=8, shuffle=True, drop_last=True):
        a = functional.normalize(one(x + 0.1 * torch.randn_like(x)), dim=-1)
        b = functional.normalize(two(x + 0.1 * torch.randn_like(x)), dim=-1)
        logits = a @ b.T * temperature.exp()
        labels = torch.arange(len(x))
        loss = (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        temperature.data.clamp_(0, 4.6)
