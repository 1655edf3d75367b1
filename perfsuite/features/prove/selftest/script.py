"""A user's training script, into which faults are put by changing a text of it.

It evaluates, saves, schedules and distills, as real ones do: what perfsuite knows of those, it knows by its hooks.
"""

from pathlib import Path

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.scripts import script

NAME = "selftest_script"
FILE = "train.py"
TEXT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
ids = torch.randint(0, 64, (600, 16))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.body = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 64)

    def forward(self, input_ids, labels):
        logits = self.head(self.norm(self.body(self.embed(input_ids))))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(64, 8), nn.Linear(8, 64)

    def forward(self, input_ids):
        return self.second(self.first(input_ids))


def collate(rows):
    batch = torch.stack(rows)
    return {"input_ids": batch, "labels": batch.masked_fill(batch == 0, -100)}


model, teacher = Language(), Teacher().eval()
decayed = [one for one in model.parameters() if one.dim() > 1]
plain = [one for one in model.parameters() if one.dim() == 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
loader = DataLoader(ids, batch_size=8, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(1))
validation = collate(list(ids[:8]))
kept = []

for number, batch in enumerate(loader):
    with torch.no_grad():
        aim = teacher(batch["input_ids"]).softmax(-1)
    output = model(**batch)
    loss = output["loss"] - 0.1 * (aim * output["logits"].log_softmax(-1)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if number % 4 == 3:
        model.eval()
        with torch.no_grad():
            model(**validation)
        model.train()
        states = {"model": model, "optimizer": optimizer, "schedule": schedule}
        torch.save({name: one.state_dict() for name, one in states.items()}, "checkpoint.pt")
"""


def selftest_script(folder: Path) -> Model:
    """The script as a model of the catalog, in a folder that gets its file."""
    (folder / FILE).write_text(TEXT)
    return script(NAME, f"python {FILE}", folder)
