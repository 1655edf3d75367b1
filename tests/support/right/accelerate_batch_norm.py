"""Image classifier (small CNN with BatchNorm and dropout) trained with accelerate."""

import argparse
import pathlib

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

CLASSES, SIZE = 8, 16


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=8, help="per process and micro-batch")
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--warmup", type=int, default=4)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--eval-every", type=int, default=8)
    p.add_argument("--save", default="ck")
    p.add_argument("--save-every", type=int, default=12)
    p.add_argument("--resume", default=None)
    return p.parse_args()


class Shapes(Dataset):
    """A fixed template for each class plus noise."""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        templates = torch.randn(CLASSES, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
        self.labels = torch.randint(CLASSES, (size,), generator=g)
        self.images = templates[self.labels] + 2.5 * torch.randn(size, 3, SIZE, SIZE, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"image": self.images[i], "label": self.labels[i]}


def augment(images):
    """Brightness and a little noise, drawn anew for every image."""
    gain = 0.9 + 0.2 * torch.rand(images.size(0), 1, 1, 1, device=images.device)
    return images * gain + 0.1 * torch.randn_like(images)


class Net(nn.Module):
    def __init__(self, width=16, dropout=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.down1 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU()
        )
        self.down2 = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU()
        )
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width * 16, CLASSES)

    def forward(self, x):
        x = self.down2(self.down1(self.stem(x)))
        return self.head(self.drop(x.flatten(1)))


def lr_factor(step, warmup, total):
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (total - step) / (total - warmup))


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    right = seen = 0
    for batch in loader:
        guess = model(batch["image"]).argmax(-1)
        guess, label = accelerator.gather_for_metrics((guess, batch["label"]))
        right += (guess == label).sum().item()
        seen += label.numel()
    model.train()
    return right / seen


def main():  # noqa: PLR0915  as people write it
    args = parse_args()
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=args.accumulate,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=args.seed),
    )
    set_seed(args.seed)
    model = Net(dropout=args.dropout)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=args.lr
    )
    # accelerate steps a prepared scheduler once for every process, so count in those units
    world = accelerator.num_processes
    scheduler = LambdaLR(optimizer, lambda s: lr_factor(s // world, args.warmup, args.steps))
    train_loader = DataLoader(
        Shapes(512, seed=1),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    eval_loader = DataLoader(Shapes(100, seed=2), batch_size=16, generator=torch.Generator())
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    per_epoch = len(train_loader) // args.accumulate
    set_seed(args.seed + 100, device_specific=True)

    step = 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(pathlib.Path(args.resume, "step.txt").read_text())

    model.train()
    while step < args.steps:
        epoch, done = divmod(step, per_epoch)
        train_loader.set_epoch(epoch)
        loader = accelerator.skip_first_batches(train_loader, done * args.accumulate) if done else train_loader
        losses = []
        for batch in loader:
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(augment(batch["image"])), batch["label"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
            if not accelerator.sync_gradients:
                continue
            step += 1
            mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean").item()
            losses = []
            accelerator.print(f"step {step} loss {mean:.4f} lr {optimizer.param_groups[0]['lr']:.6f}", flush=True)
            if step % args.eval_every == 0:
                accuracy = evaluate(model, eval_loader, accelerator)
                accelerator.print(f"step {step} accuracy {accuracy:.3f}", flush=True)
            if args.save and step % args.save_every == 0:
                accelerator.save_state(f"{args.save}/step{step}")
                if accelerator.is_main_process:
                    pathlib.Path(f"{args.save}/step{step}/step.txt").write_text(str(step))
                accelerator.wait_for_everyone()
            if step >= args.steps:
                break
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
