"""GPT-2 by Lightning."""

import argparse

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--accumulate_grad_batches", type=int, default=2)
parser.add_argument("--devices", type=int, default=1)
options = parser.parse_args()
lightning.seed_everything(0)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=2)
        self.model = GPT2LMHeadModel(config)

    def training_step(self, batch, index):
        (ids,) = batch
        loss = self.model(input_ids=ids, labels=ids).loss
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        (ids,) = batch
        self.log("val_loss", self.model(input_ids=ids, labels=ids).loss)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 1e-3, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


data = torch.randint(96, (128, 20), generator=torch.Generator().manual_seed(1))
train = DataLoader(TensorDataset(data[:112]), options.batch_size, shuffle=True)
validation = DataLoader(TensorDataset(data[112:]), 8)
trainer = lightning.Trainer(
    max_epochs=4,
    accelerator="cpu",
    devices=options.devices,
    accumulate_grad_batches=options.accumulate_grad_batches,
    gradient_clip_val=1.0,
    enable_progress_bar=False,
    logger=False,
    num_sanity_val_steps=0,
)
module = Module()
trainer.fit(module, train, validation)
