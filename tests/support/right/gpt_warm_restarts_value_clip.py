"""GPT-2 with warm restarts, and gradients clipped by value."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)


class Texts(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randint(1, 50, (16,), generator=torch.Generator().manual_seed(index))


model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))

optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=6, T_mult=2)
for _ in range(3):
    for ids in DataLoader(Texts(), 8, shuffle=True):
        model(input_ids=ids, labels=ids).loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
