"""A sparse embedding and a dense body, each with an optimizer."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(200, 16, sparse=True)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        return self.body(self.embed(ids)).squeeze(-1)


model = Model()
sparse = torch.optim.SparseAdam(list(model.embed.parameters()), 1e-2)
dense = torch.optim.Adagrad(model.body.parameters(), 1e-2)
data = TensorDataset(torch.randint(0, 200, (96, 5)), torch.rand(96).round())
for _ in range(3):
    for ids, y in DataLoader(data, 8, shuffle=True):
        sparse.zero_grad(), dense.zero_grad()
        functional.binary_cross_entropy_with_logits(model(ids), y).backward()
        sparse.step(), dense.step()
