"""What a script's evaluations say: losses without gradients, and the numbers that its library logs."""

import pytest
from small_scripts import START, measured

from perfsuite.records.measurement import Measurement

EVALUATES = """
criterion = nn.MSELoss()
x, y = torch.ones(4, 8), torch.zeros(4, 8)

class Whole(nn.Module):
    def forward(self, x, y):
        loss = (self.inner(x) - y).pow(2).mean()
        return {"named": {"loss": loss, "logits": x}, "pair": (x, loss)}[self.form]

whole = Whole()
whole.inner, whole.form = model, "named"

for number in range(40):
    step()
    if number % 4 == 1:
        whole.eval()
        with torch.no_grad():
            CALL
        whole.train()
"""
ACCELERATED = """
from accelerate import Accelerator
mine = Accelerator(cpu=True)
for number in range(40):
    step()
    mine.log({"eval_loss": torch.tensor(0.5), "epoch": number // 10, "runtime": 3.0, "name": "a"}, step=number)
"""
TRAINED = """
from transformers import Trainer, TrainingArguments

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x, labels):
        return {"loss": (self.inner(x) - labels).pow(2).mean(), "logits": x}

rows = [{"x": torch.full((8,), row / 8), "labels": torch.zeros(8)} for row in range(256)]
arguments = TrainingArguments("out", use_cpu=True, report_to=[], max_steps=40, logging_steps=5, eval_strategy="steps",
                              eval_steps=5, save_strategy="no", per_device_train_batch_size=4)
Trainer(Model(), arguments, train_dataset=rows, eval_dataset=rows[:16]).train()
"""

LIGHTNING = """
from lightning.pytorch.trainer.trainer import Trainer
trainer = Trainer()
for number in range(40):
    step()
    trainer.logged = {"val_loss": torch.tensor(number // 4 * 0.5)}
"""


def numbers(folder, text) -> dict[str, list[float | None]]:
    """The logged numbers of one launch, by name."""
    found: Measurement = measured(folder, START + text)
    assert found.outcome == "fits", found.failure
    return found.readings["logged_numbers"].series


@pytest.mark.parametrize("call", ["whole(x, y)", "whole.form = 'pair'; whole(x, y)", "criterion(model(x), y)"])
def test_the_losses_of_evaluations_are_known(tmp_path, call):
    """By name, the only single number, or the output of a loss."""
    (losses,) = numbers(tmp_path, EVALUATES.replace("CALL", call)).values()

    assert len(losses) >= 3
    assert all(loss is not None and loss > 0 for loss in losses)


def test_accelerate_logs_numbers(tmp_path):
    """What varies between launches, or is no number, is left out."""
    found = numbers(tmp_path, ACCELERATED)

    assert found["eval_loss"][:3] == [0.5, 0.5, 0.5]
    assert found.keys() == {"eval_loss", "epoch"}


def test_transformers_trainer_logs_numbers(tmp_path):
    """Under its own names."""
    found = numbers(tmp_path, TRAINED)

    assert {"loss", "grad_norm", "learning_rate", "eval_loss", "loss without gradients"} <= found.keys()
    assert not any("runtime" in name or "per_second" in name for name in found)


def test_lightning_logs_numbers(tmp_path):
    """In its Trainer's metrics, which keep the last one until there is another. Here is a stand-in of that name."""
    module = tmp_path / "lightning" / "pytorch" / "trainer" / "trainer.py"
    module.parent.mkdir(parents=True)
    module.write_text("class Trainer:\n    callback_metrics = property(lambda self: vars(self).get('logged', {}))\n")

    assert numbers(tmp_path, LIGHTNING)["val_loss"][:3] == [0.0, 0.5, 1.0]
