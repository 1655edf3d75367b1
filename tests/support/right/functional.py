"""Gradients of each sample by torch.func, clipped and averaged."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

torch.manual_seed(0)
x, y = torch.randn(96, 16), torch.randint(0, 4, (96,))
model = nn.Linear(16, 4)
parameters = dict(model.named_parameters())


def loss_of(parameters, a, b):
    return functional.cross_entropy(functional_call(model, parameters, (a[None],)), b[None])


each = vmap(grad(loss_of), in_dims=(None, 0, 0))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(30):
    rows = torch.randperm(96)[:8]
    gradients = each({name: one.detach() for name, one in parameters.items()}, x[rows], y[rows])
    optimizer.zero_grad()
    for name, parameter in parameters.items():
        norms = gradients[name].flatten(1).norm(dim=1).clamp(min=1)
        parameter.grad = (gradients[name] / norms.view(-1, *[1] * parameter.dim())).mean(0)
    optimizer.step()
