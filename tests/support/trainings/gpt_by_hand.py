"""A small GPT on one device, with all that a training loop of one file has."""

import argparse
import math
import pathlib
import random

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--resume")
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
torch.manual_seed(0)
random.seed(0)
VOCABULARY, WIDTH, STEPS = 96, 32, 120


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.ln_1(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(self.ln_f(x))


def loss_of(logits, ids):
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def evaluate(model, rows):
    model.eval()
    with torch.no_grad():
        loss = loss_of(model(rows), rows).item()
    model.train()
    return loss


data = torch.randint(VOCABULARY, (160, 24), generator=torch.Generator().manual_seed(1))
loader = DataLoader(TensorDataset(data[:128]), options.batch_size, shuffle=True, drop_last=True)
model = GPT()
groups = [
    {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
    {"params": [one for one in model.parameters() if one.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, 1e-3)
scheduler = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
    ],
    [5],
)
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
step = 0
if options.resume:
    saved = torch.load(options.resume, weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    average.load_state_dict(saved["average"])
    torch.set_rng_state(saved["random"])
    step = saved["step"]
forward = torch.compile(model, backend="aot_eager") if options.compile else model
per_epoch = len(loader) // options.accumulate
while step < STEPS:
    for number, (ids,) in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = loss_of(forward(ids), ids)
        (loss / options.accumulate).backward()
        if (number + 1) % options.accumulate:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        average.update_parameters(model)
        step += 1
        if step % 10 == 0:
            print(step, loss.item(), evaluate(model, data[128:]))
    if step <= per_epoch:
        pathlib.Path("out").mkdir(exist_ok=True)
        states = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "average": average}
        saved = {name: one.state_dict() for name, one in states.items()}
        torch.save(saved | {"random": torch.get_rng_state(), "step": step}, "out/last.pt")
