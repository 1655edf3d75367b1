"""A denoiser, and an average of its weights."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(100, 16)
        self.net = nn.Sequential(
            nn.Conv1d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv1d(8, 1, 3, padding=1)
        )

    def forward(self, x, t):
        return self.net((x + self.time(t)).unsqueeze(1)).squeeze(1)


model = Denoiser()
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
alphas = torch.linspace(0.99, 0.01, 100)
for _ in range(3):
    for x in DataLoader(torch.randn(96, 16), batch_size=8, shuffle=True):
        t = torch.randint(0, 100, (len(x),))
        noise = torch.randn_like(x)
        a = alphas[t, None]
        loss = functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
