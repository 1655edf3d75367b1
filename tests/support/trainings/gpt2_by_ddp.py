"""GPT-2 by DistributedDataParallel, with accumulation under no_sync, workers, padding and an evaluation."""

import argparse
import contextlib
import itertools

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=4)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
options = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
numpy.random.seed(0)


class Rows(Dataset):
    """Rows of other lengths, from which words are dropped at random."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.rows = [torch.randint(1, 96, (10 + n % 14,), generator=generator) for n in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = (ids != 0).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


train = Rows(128)
sampler = DistributedSampler(train, seed=0)
batch, accumulate = options.per_device_train_batch_size, options.gradient_accumulation_steps
loader = DataLoader(train, batch, sampler=sampler, collate_fn=collate, num_workers=2, drop_last=True)
config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.1, pad_token_id=0)
model = DistributedDataParallel(GPT2LMHeadModel(config))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
epochs = 3
scheduler = get_cosine_schedule_with_warmup(optimizer, 4, epochs * len(loader) // accumulate)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    batches = iter(loader)
    for _ in range(len(loader) // accumulate):
        parts = list(itertools.islice(batches, accumulate))
        count = sum((inputs["labels"][:, 1:] != -100).sum() for inputs in parts)
        dist.all_reduce(count)
        for number, inputs in enumerate(parts):
            is_last = number + 1 == accumulate
            with contextlib.nullcontext() if is_last else model.no_sync():
                labels = inputs.pop("labels")
                logits = model(**inputs).logits
                loss = torch.nn.functional.cross_entropy(
                    logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
                )
                (loss * world / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        ids = collate([train[n] for n in range(8)])
        model.module(**ids)
    model.train()
dist.destroy_process_group()
