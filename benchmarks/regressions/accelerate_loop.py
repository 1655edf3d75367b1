"""A small model in a loop of one's own, with Accelerate, on rows in random order.

torchrun --nproc-per-node 2 benchmarks/regressions/accelerate_loop.py
"""

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, STEPS = 32, 8, 30


def main() -> None:
    """Train on random rows."""
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    rows = TensorDataset(torch.randn(STEPS * BATCH * accelerator.num_processes, WIDTH))
    loader: Any = DataLoader(rows, batch_size=BATCH, shuffle=True)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (batch,) in loader:
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main()
