"""L-BFGS, whose closure is called by its step."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
x, y = torch.randn(64, 16), torch.randn(64, 1)
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)


def closure():
    optimizer.zero_grad()
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(15):
    optimizer.step(closure)
