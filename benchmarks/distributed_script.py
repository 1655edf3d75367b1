"""A user's script on several ranks, which repeat.py measures: torchrun --nproc-per-node 2 distributed_script.py KIND

KIND is ddp, fsdp2, zero2 or zero3. A small GPT-2 learns shuffled rows of different lengths, which a DataLoader pads.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.utils.data import DataLoader, DistributedSampler

KIND, STEPS, ROWS = sys.argv[1], 30, 4


def padded(rows):
    """One tensor of a batch, and its mask."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=512, n_positions=128)
model: Any = transformers.GPT2LMHeadModel(config)
data: Any = [torch.randint(1, 512, (int(torch.randint(16, 64, ())),)) for _ in range(STEPS * ROWS * ranks)]
sampler: Any = DistributedSampler(data, num_replicas=ranks, rank=rank, seed=0)
loader: Any = DataLoader(data, batch_size=ROWS, sampler=sampler, collate_fn=padded)
torch.manual_seed(rank)
if KIND.startswith("zero"):
    import deepspeed

    zero = {"stage": int(KIND[-1]), "reduce_bucket_size": 4096}
    settings = {
        "train_micro_batch_size_per_gpu": ROWS,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.AdamW(model.parameters())
    model, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    for rows in loader:
        model.backward(model(input_ids=rows, labels=rows).loss)
        model.step()
else:
    if KIND == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for rows in loader:
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
