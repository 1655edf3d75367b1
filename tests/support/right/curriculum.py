"""GPT-2 on rows that become longer."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))

optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
rows = torch.randint(1, 64, (96, 32))
for length in (8, 16, 32):
    for ids in DataLoader(rows[:, :length], 8, shuffle=True):
        out = model(ids).logits
        loss = functional.cross_entropy(out[:, :-1].reshape(-1, 64), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
