"""Right training scripts, into which tests of ``perfsuite prove`` put one fault each."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

TORCHRUN = ("torchrun", "--nproc-per-node=2")
HALF = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 32)
    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + self.body(x)))
model = Net()
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for x, y in loader:
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    scaler.step(optimizer)
    scaler.update()
"""
SINGLE = HALF.replace("torch.float16", "torch.float16, enabled=False").replace('"cpu")', '"cpu", enabled=False)', 1)
DDP = """
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 32))
model = nn.parallel.DistributedDataParallel(net)
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
"""
FSDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 32))
for module in (model[1], model[3], model):
    fully_shard(module)
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
"""
LANGUAGE = """
import torch
from torch import nn
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
    def forward(self, x, mask):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)
        return x + self.out(y.transpose(1, 2).flatten(2))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(32, 16), nn.Embedding(16, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 32)
    def forward(self, input_ids, attention_mask, position_ids):
        tokens = input_ids.shape[1]
        documents = (position_ids == 0).cumsum(1)
        mask = torch.ones(tokens, tokens).tril().bool()
        mask = mask & (documents[:, None, :] == documents[:, :, None])
        mask = mask & attention_mask.bool()[:, None, :] | torch.eye(tokens).bool()
        x = self.embed(input_ids) + self.places(position_ids)
        for block in self.blocks:
            x = block(x, mask[:, None])
        return self.head(x)
model = Model()
rows = torch.randint(1, 32, (64, 17))
rows[:, 13:] = torch.where(torch.arange(64)[:, None] % 2 == 1, 0, rows[:, 13:])
loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for batch in loader:
    x, y = batch[:, :-1], batch[:, 1:]
    places = torch.arange(16) % 7
    logits = model(input_ids=x, attention_mask=(x != 0).long(), position_ids=places.expand(len(x), -1))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TRAINER = """
import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
def row(number):
    ids = torch.randint(2, 64, (16,), generator=torch.Generator().manual_seed(number))
    length = 12 + number % 5
    ids[length:] = 0
    labels = ids.masked_fill(ids == 0, -100)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}
trainer = Trainer(model=model, args=arguments, train_dataset=[row(number) for number in range(64)])
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
"""
TRAIN = [
    "--output_dir",
    "out",
    "--use_cpu",
    "--report_to",
    "none",
    "--per_device_train_batch_size",
    "2",
    "--max_steps",
    "12",
]
ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 32))
data = torch.utils.data.TensorDataset(torch.randint(32, (64, 8)), torch.randint(32, (64, 8)))
loader = torch.utils.data.DataLoader(data, batch_size=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()))
    accelerator.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
"""
RESUMED = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="")
arguments = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
rows = torch.randn(64, 8)
begin = 0
if arguments.resume:
    saved = torch.load(arguments.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["random"])
    begin = saved["step"]
for step in range(begin, 16):
    batch = rows[step * 4 : step * 4 + 4]
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 5 == 4:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save(state | {"step": step + 1, "random": torch.get_rng_state()}, "last.pt")
"""
Fault = tuple[Any, ...]


def prove(folder: Path, text: str, only: str, launcher: Sequence[str] = ("python",), words: Sequence[str] = ()) -> Any:
    """The status of the command, and what it prints."""
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "perfsuite.cli.main", "prove", f"--only={only}", "--", *launcher, "train.py"]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, env=os.environ)
    return done.returncode, done.stdout + done.stderr


def edited(text: str, *edits: tuple[str, str]) -> str:
    """With the edits, each of which must be possible at one place."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def always_one(faults: Sequence[Fault]) -> list[Any]:
    """Of each relation, which a fault names first, the first fault runs always."""
    known: set[str] = set()
    found = []
    for one in faults:
        found.append(pytest.param(*one, marks=[pytest.mark.slow] if one[0] in known else []))
        known.add(one[0])
    return found
