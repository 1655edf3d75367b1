"""A generator and a critic, each with an optimizer."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

torch.manual_seed(0)
make = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
makes, judges = torch.optim.Adam(make.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
for _ in range(3):
    for x in DataLoader(torch.randn(96, 16), batch_size=8, shuffle=True):
        fake = make(torch.randn(len(x), 4))
        judges.zero_grad()
        loss = functional.softplus(-judge(x)).mean() + functional.softplus(judge(fake.detach())).mean()
        loss.backward()
        judges.step()
        makes.zero_grad()
        functional.softplus(-judge(fake)).mean().backward()
        makes.step()
