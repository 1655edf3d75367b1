"""Knowledge distillation of a small student from a frozen teacher, with an EMA copy, fp16 autocast and a GradScaler."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CLASSES, LENGTH, CHANNELS = 6, 32, 4


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--temperature", type=float, default=2.0)
    p.add_argument("--alpha", type=float, default=0.7, help="weight of the teacher's part of the loss")
    p.add_argument("--ema", type=float, default=0.9)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp16")
    p.add_argument("--noise", type=float, default=0.3, help="feature noise at the start, goes to 0")
    p.add_argument(
        "--compile", default="aot_eager", metavar="BACKEND", help="torch.compile backend, e.g. inductor or aot_eager"
    )
    p.add_argument("--seed", type=int, default=21)
    p.add_argument("--save", default="ck")
    p.add_argument("--save-every", type=int, default=10)
    p.add_argument("--resume", default=None)
    return p.parse_args()


def clean_signals(labels):
    t = torch.linspace(0, 1, LENGTH)
    g = torch.Generator().manual_seed(0)
    phase = torch.rand(CLASSES, CHANNELS, 1, generator=g) * 6.28
    freq = torch.randint(1, 6, (CLASSES, CHANNELS, 1), generator=g)
    return torch.sin(6.28 * freq * t + phase)[labels]


class Signals(Dataset):
    """Noisy signals; every fetch draws a random shift and gain with numpy."""

    def __init__(self, size, seed, augment):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (size,), generator=g)
        self.signals = clean_signals(self.labels) + 0.5 * torch.randn(size, CHANNELS, LENGTH, generator=g)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = self.signals[i]
        if self.augment:
            x = torch.roll(x, int(np.random.randint(-2, 3)), dims=-1) * float(np.random.uniform(0.8, 1.2))
        return x, self.labels[i]


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


class ConvNet(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width * LENGTH // 2, CLASSES)
        self.register_buffer("noise", torch.zeros(()), persistent=False)

    def forward(self, x):
        h = self.body(x).flatten(1)
        if self.training:
            h = h + self.noise * torch.randn_like(h)
        return self.head(self.drop(h))


@torch.no_grad()
def build_teacher():
    """Random features with a head solved by least squares; stands for a trained checkpoint."""
    torch.manual_seed(99)
    teacher = ConvNet(24, dropout=0.2)
    labels = torch.arange(CLASSES).repeat(100)
    x = clean_signals(labels) + 0.5 * torch.randn(len(labels), CHANNELS, LENGTH)
    teacher.body.train()
    for _ in range(30):
        teacher.body(x)
    teacher.eval()
    feats = teacher.body(x).flatten(1)
    goal = 6.0 * functional.one_hot(labels, CLASSES).float()
    teacher.head.weight.copy_(torch.linalg.solve(feats.T @ feats + 10 * torch.eye(feats.size(1)), feats.T @ goal).T)
    teacher.head.bias.zero_()
    return teacher.requires_grad_(False)


def distill_loss(student_logits, teacher_logits, labels, temperature, alpha):
    s, t = student_logits.float() / temperature, teacher_logits.float() / temperature
    soft = (
        functional.kl_div(functional.log_softmax(s, dim=-1), functional.softmax(t, dim=-1), reduction="batchmean")
        * temperature**2
    )
    return alpha * soft + (1 - alpha) * functional.cross_entropy(student_logits.float(), labels)


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters(), strict=False):
        e.lerp_(p, 1 - decay)
    for e, b in zip(ema.buffers(), model.buffers(), strict=False):
        e.copy_(b)


@torch.no_grad()
def accuracy(model, loader):
    was_training = model.training
    model.eval()
    right = sum((model(x).argmax(-1) == y).sum().item() for x, y in loader)
    model.train(was_training)
    return right / len(loader.dataset)


def main():  # noqa: PLR0915  as people write it
    args = parse_args()
    teacher = build_teacher()
    torch.manual_seed(args.seed)
    student, ema = ConvNet(12, args.dropout), ConvNet(12, 0.0)
    ema.load_state_dict(student.state_dict())
    ema.requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.steps + 1, pct_start=0.2
    )
    scaler = torch.amp.GradScaler("cpu", enabled=args.precision == "fp16", init_scale=1024.0, growth_interval=500)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float16
    forward = torch.compile(student, backend=args.compile) if args.compile else student

    order = torch.Generator()
    loader = DataLoader(
        Signals(480, 1, True),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=order,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
    )
    eval_loader = DataLoader(Signals(96, 2, False), batch_size=32, generator=torch.Generator())
    per_epoch = len(loader) // args.accumulate

    step = 0
    torch.manual_seed(args.seed + 1)
    if args.resume:
        state = torch.load(args.resume, weights_only=False)
        for name, part in {
            "student": student,
            "ema": ema,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "scaler": scaler,
        }.items():
            part.load_state_dict(state[name])
        step = state["step"]
        torch.set_rng_state(state["rng"])

    student.train()
    while step < args.steps:
        epoch, done = divmod(step, per_epoch)
        order.manual_seed(args.seed * 1000 + epoch)
        total = 0.0
        for i, (x, y) in enumerate(loader):
            if i < done * args.accumulate:
                continue
            if i >= per_epoch * args.accumulate or step >= args.steps:
                break
            student.noise.fill_(args.noise * (1 - step / args.steps))
            with torch.autocast("cpu", dtype=dtype, enabled=args.precision != "fp32"):
                with torch.no_grad():
                    teacher_logits = teacher(x)
                logits = forward(x)
            loss = distill_loss(logits, teacher_logits, y, args.temperature, args.alpha) / args.accumulate
            scaler.scale(loss).backward()
            total += loss.item()
            if (i + 1) % args.accumulate:
                continue
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            update_ema(ema, student, args.ema)
            step += 1
            print(f"step {step} loss {total:.4f} lr {scheduler.get_last_lr()[0]:.6f}", flush=True)
            total = 0.0
            if args.save and step % args.save_every == 0:
                os.makedirs(args.save, exist_ok=True)
                torch.save(
                    {
                        "student": student.state_dict(),
                        "ema": ema.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(),
                        "scaler": scaler.state_dict(),
                        "step": step,
                        "rng": torch.get_rng_state(),
                    },
                    f"{args.save}/step{step}.pt",
                )
            if step % 8 == 0:
                print(f"step {step} accuracy {accuracy(student, eval_loader):.3f} ema {accuracy(ema, eval_loader):.3f}")


if __name__ == "__main__":
    main()
