"""A small model trained by DeepSpeed, with one feature of its configuration.

    python benchmarks/regressions/deepspeed_features.py warmup

The argument is the feature:

    warmup       WarmupLR, and two groups of parameters with learning rates of their own
    cosine       WarmupCosineLR, and the same two groups
    stairs       OneCycle in stairs
    unscaled     the script divides the loss by its four micro-batches itself
"""

import os
import sys
from typing import Any

import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed

WIDTH, ROWS, STEPS = 33, 16, 30
FEW = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
FEATURES: dict[str, dict[str, Any]] = {
    "warmup": {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}},
    "cosine": {"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 30, "warmup_num_steps": 10}}},
    "stairs": {
        "scheduler": {
            "type": "OneCycle",
            "params": {
                "cycle_min_lr": 1e-4,
                "cycle_max_lr": 1e-2,
                "cycle_first_step_size": 12,
                "cycle_first_stair_count": 3,
            },
        }
    },
    "unscaled": {"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1}},
}


class Model(torch.nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)
        self.last = torch.nn.Linear(WIDTH, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The loss."""
        loss: torch.Tensor = self.last(self.second(self.first(rows).relu()).relu()).square().mean()
        return loss


def main(feature: str) -> None:
    """Train on random rows."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_PORT", "29533")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which it would compile first
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model, options = Model(), FEATURES[feature]
    config = {
        "train_micro_batch_size_per_gpu": ROWS,
        "optimizer": FEW,
        "zero_allow_untested_optimizer": True,
        **options,
    }
    more: dict[str, Any] = {"model_parameters": list(model.parameters())}
    if feature in ("warmup", "cosine"):
        del config["optimizer"]
        groups = [
            {"params": model.first.parameters(), "lr": 1e-2},
            {"params": [*model.second.parameters(), *model.last.parameters()], "lr": 1e-3},
        ]
        more = {"optimizer": torch.optim.Adam(groups, lr=1e-2)}
    engine, *_ = deepspeed.initialize(model=model, config=config, **more)
    chance = torch.Generator().manual_seed(1)
    micro = options.get("gradient_accumulation_steps", 1)
    for _ in range(STEPS * micro):
        loss = engine(torch.randn(ROWS, WIDTH, generator=chance))
        if feature == "unscaled":
            engine.backward(loss / micro, scale_wrt_gas=False)
        else:
            engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main(sys.argv[1])
