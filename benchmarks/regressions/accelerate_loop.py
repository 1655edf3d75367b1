"""A small model in a loop of one's own, with Accelerate, on rows in random order.

    torchrun --nproc-per-node 2 benchmarks/regressions/accelerate_loop.py shuffle

The argument says who makes the order: "shuffle", the loader; or "sampler", a sampler of one's own, for each epoch.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Sampler, TensorDataset

WIDTH, BATCH, STEPS, EPOCHS = 32, 8, 30, 3


class OfEpoch(Sampler[int]):
    """Another order in each epoch, as DistributedSampler's."""

    def __init__(self, rows: TensorDataset) -> None:
        self.count, self.epoch = len(rows), 0

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch)).tolist())


def main(order: str) -> None:
    """Train on random rows."""
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    rows = TensorDataset(torch.randn(STEPS // EPOCHS * BATCH * accelerator.num_processes, WIDTH))
    ordered = {"shuffle": True} if order == "shuffle" else {"sampler": OfEpoch(rows)}
    loader: Any = DataLoader(rows, batch_size=BATCH, **ordered)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        for (batch,) in loader:
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
