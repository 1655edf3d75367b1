"""GPT-2 by FullyShardedDataParallel."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Texts(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randint(1, 50, (16,), generator=torch.Generator().manual_seed(index))


model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))

model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
sampler = DistributedSampler(Texts())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for ids in DataLoader(Texts(), 4, sampler=sampler):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
dist.destroy_process_group()
