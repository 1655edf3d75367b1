"""A mixture of experts of DeepSpeed on one rank, in which each token asks for three of four experts.

    python benchmarks/regressions/deepspeed_moe.py

An expert takes so many tokens, and no more: others are dropped.
"""

import os

import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
from deepspeed.moe.layer import MoE

WIDTH, TOKENS, STEPS = 32, 64, 30
CONFIG = {"train_batch_size": 1, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}}


class Experts(torch.nn.Module):
    """A mixture of experts between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Linear(WIDTH, WIDTH)
        self.experts = MoE(WIDTH, torch.nn.Linear(WIDTH, WIDTH), num_experts=4, k=3, capacity_factor=1.0)
        self.after = torch.nn.Linear(WIDTH, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        mixed, auxiliary, _ = self.experts(self.before(rows))
        loss: torch.Tensor = self.after(mixed).square().mean() + 0.01 * auxiliary
        return loss


def main() -> None:
    """Train on random rows."""
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"})
    os.environ.setdefault("MASTER_PORT", "29531")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which it would compile first
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=Experts(), config=CONFIG)
    chance = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        engine.backward(engine(torch.randn(1, TOKENS, WIDTH, generator=chance)))
        engine.step()


if __name__ == "__main__":
    main()
