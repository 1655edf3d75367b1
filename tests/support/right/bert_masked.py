"""BERT by masked tokens, without a seed in its workers."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)


class Texts(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randint(1, 50, (16,), generator=torch.Generator().manual_seed(index))


model = BertForMaskedLM(
    BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


def collate(rows):
    ids = torch.stack(rows)
    hidden = torch.rand(ids.shape) < 0.3
    return {"input_ids": ids.masked_fill(hidden, 63), "labels": ids.masked_fill(~hidden, -100)}


for _ in range(3):
    for batch in DataLoader(Texts(), 8, shuffle=True, collate_fn=collate):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
