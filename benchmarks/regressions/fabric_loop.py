"""A small model in a loop of one's own, with Lightning's Fabric, on rows in an order of one's own for each epoch.

torchrun --nproc-per-node 2 benchmarks/regressions/fabric_loop.py
"""

from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

WIDTH, BATCH, STEPS, EPOCHS, RANKS = 32, 8, 30, 3, 2


class OfEpoch(Sampler[int]):
    """Another order in each epoch, as DistributedSampler's."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch)).tolist())


def main() -> None:
    """Train; Fabric tells the sampler of the epoch."""
    fabric = lightning.Fabric(accelerator="cpu", devices=RANKS, strategy="ddp")
    fabric.launch()
    lightning.seed_everything(0)
    layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    model, optimizer = fabric.setup(layers, torch.optim.AdamW(layers.parameters(), lr=1e-3))
    rows = TensorDataset(torch.randn(STEPS // EPOCHS * BATCH * RANKS, WIDTH))
    loader: Any = fabric.setup_dataloaders(DataLoader(rows, batch_size=BATCH, sampler=OfEpoch(len(rows))))
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for (batch,) in loader:
            fabric.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
