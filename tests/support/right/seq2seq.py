"""T5 with padded rows, which generates after each epoch."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
model = T5ForConditionalGeneration(
    T5Config(vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, decoder_start_token_id=0)
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


class Pairs(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randint(
            1, 64, (random.Random(index).randint(5, 12),), generator=torch.Generator().manual_seed(index)
        )


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": ids.flip(1).masked_fill(ids.flip(1) == 0, -100),
    }


for _ in range(3):
    model.train()
    for batch in DataLoader(Pairs(), 8, shuffle=True, collate_fn=collate):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model.generate(batch["input_ids"], max_new_tokens=4)
