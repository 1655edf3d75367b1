"""Two heads, of which a step trains one."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(32, 4), "size": nn.Linear(32, 1)})

    def forward(self, x, task):
        return self.heads[task](self.body(x))


model = Tasks()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    for number, x in enumerate(DataLoader(torch.randn(96, 16), 8, shuffle=True)):
        optimizer.zero_grad()
        if number % 3:
            loss = functional.cross_entropy(model(x, "kind"), x[:, :4].argmax(1))
        else:
            loss = functional.mse_loss(model(x, "size").squeeze(1), x.square().mean(1))
        loss.backward()
        optimizer.step()
