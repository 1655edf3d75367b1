"""A Llama by fully_shard in bfloat16, with clipping."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--fp32", action="store_true")
options = parser.parse_args()
dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=64,
    tie_word_embeddings=False,
    attn_implementation="eager",
)
model = LlamaForCausalLM(config)
policy = MixedPrecisionPolicy() if options.fp32 else MixedPrecisionPolicy(torch.bfloat16, torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
data = TensorDataset(torch.randint(96, (128, 24), generator=torch.Generator().manual_seed(1)))
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, options.batch_size, sampler=sampler)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
for epoch in range(4):
    sampler.set_epoch(epoch)
    for (ids,) in loader:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(input_ids=data[:8][0])
    model.train()
dist.destroy_process_group()
