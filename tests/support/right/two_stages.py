"""Fine-tunes by hand, and then trains the same model by another optimizer with a schedule."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
rows, labels = torch.randn(256, 16), torch.randint(0, 4, (256,))


def step(optimizer, at):
    chosen = slice(8 * at % 256, 8 * at % 256 + 8)
    loss = nn.functional.cross_entropy(model(rows[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


first = torch.optim.AdamW(model.parameters(), lr=1e-3)
for at in range(40):
    step(first, at)

second = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(second, lambda at: 1 - at / 40)
for at in range(40):
    step(second, at)
    schedule.step()
