"""A variational autoencoder."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        mean, log = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.decoder(z), mean, log


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(torch.randn(96, 16), batch_size=8, shuffle=True)
for _ in range(3):
    for x in loader:
        y, mean, log = model(x)
        loss = functional.mse_loss(y, x, reduction="sum") - 0.5 * (1 + log - mean.square() - log.exp()).sum()
        optimizer.zero_grad()
        (loss / len(x)).backward()
        optimizer.step()
