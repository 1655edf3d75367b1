"""Lightning's Trainer on a small model and random rows.

    python benchmarks/regressions/lightning_fit.py logged

The argument is what the training does besides:

    logged    it logs the loss of every step to a CSV file, with many hyperparameters
"""

import sys
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, STEPS = 32, 8, 60


class Small(lightning.LightningModule):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Two layers, and what a user may configure."""

    def __init__(self, width: int = WIDTH, **options: Any) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a step, which is logged."""
        loss = self.layers(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def settings(kind: str) -> dict[str, Any]:
    """Of the Trainer."""
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    return quiet | {"logger": CSVLogger("logs", flush_logs_every_n_steps=1), "log_every_n_steps": 1}


def main(kind: str) -> None:
    """Train."""
    lightning.seed_everything(0)
    rows = DataLoader(TensorDataset(torch.randn(STEPS * BATCH, WIDTH)), batch_size=BATCH)
    model = Small(**{f"option_{number}": number for number in range(20)})
    lightning.Trainer(max_epochs=1, enable_checkpointing=False, **settings(kind)).fit(model, rows)


if __name__ == "__main__":
    main(sys.argv[1])
