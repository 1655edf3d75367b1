"""Llama on rows of several documents."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
generator = torch.Generator().manual_seed(1)
for _ in range(24):
    lengths = [10, 6, 8]
    ids = torch.randint(1, 64, (1, 24), generator=generator)
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    labels = ids.masked_fill(places == 0, -100)
    model(input_ids=ids, position_ids=places, labels=labels, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
