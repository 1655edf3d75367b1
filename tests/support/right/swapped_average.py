"""An average of weights that an evaluation puts in, and weights that are clamped after each update."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))


def evaluate(rows):
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(average)
    model.eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        loss = functional.cross_entropy(model(rows + 0.01 * torch.randn_like(rows)), torch.zeros(16).long())
    model.train()
    model.load_state_dict(own)
    return loss.item()


for _ in range(4):
    for x, y in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.2, 0.2)
            for name, tensor in model.state_dict().items():
                average[name].lerp_(tensor, 0.1)
    print(norm.item(), evaluate(torch.randn(16, 16)))
