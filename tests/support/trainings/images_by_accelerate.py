"""An image classifier by accelerate, with accumulation, BatchNorm and augmentation."""

import argparse

import numpy
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, cpu=True)
set_seed(0)


class Images(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.images = torch.randn(count, 3, 16, 16, generator=generator)
        self.labels = torch.randint(10, (count,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image.flip(-1) if numpy.random.rand() < 0.0 else image, self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.GELU())
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU()) for _ in range(3)
        )
        self.ln = nn.LayerNorm(16)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.body:
            x = x + block(x)
        return self.head(self.drop(self.ln(x.mean((2, 3)))))


train = DataLoader(Images(256), args.batch_size, shuffle=True, num_workers=2, drop_last=True)
test = DataLoader(Images(32), 16)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=2000)
model, optimizer, train, test, scheduler = accelerator.prepare(model, optimizer, train, test, scheduler)
start = 0
if args.resume_from_checkpoint:
    accelerator.load_state(args.resume_from_checkpoint)
    start = 1
for epoch in range(start, 4):
    model.train()
    train.set_epoch(epoch)
    for images, labels in train:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    if epoch == 0:
        accelerator.save_state("out")
    model.eval()
    with torch.no_grad():
        for images, _ in test:
            model(images)
