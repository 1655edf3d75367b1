"""Gradients that the script averages itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(0)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

sampler = DistributedSampler(data)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 8, sampler=sampler):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
dist.destroy_process_group()
