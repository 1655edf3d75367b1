"""A stream that two workers share."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Stream(IterableDataset):
    def __iter__(self):
        about = torch.utils.data.get_worker_info()
        for index in range(about.id if about else 0, 96, about.num_workers if about else 1):
            row = torch.randn(16, generator=torch.Generator().manual_seed(index))
            yield row, row[:4].argmax()


model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
for _ in range(3):
    for x, y in DataLoader(Stream(), 8, num_workers=2):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
