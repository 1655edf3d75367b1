"""GPT-2 with an adapter by peft."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)


class Texts(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randint(1, 50, (16,), generator=torch.Generator().manual_seed(index))


model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))

model = get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for _ in range(3):
    for ids in DataLoader(Texts(), 8, shuffle=True):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
