"""What a script begins with, below a loss that differs: its weights, its batches, and the order of its samples."""

import pytest
from small_scripts import measured

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import compare
from perfsuite.compare.terms import terms_of
from perfsuite.records.reasons import Origin, StepDiffers

SCRIPT = """
import os, torch
from torch import nn
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 8), nn.Linear(8, 32)
    def forward(self, input_ids, labels, mask=None):
        logits = self.head(self.embed(input_ids))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids.masked_fill(ids < IGNORED, -100)}

ids = torch.randint(0, 32, (256, 6), generator=torch.Generator().manual_seed(1))
IGNORED, SEED, SAME = 4, 2, 1000
model = Model()
SETUP
class Order(torch.utils.data.Sampler):
    def __len__(self):
        return len(ids)
    def __iter__(self):
        rows = list(range(len(ids)))
        return iter(rows[:SAME] + rows[SAME:][::-1])
loader = torch.utils.data.DataLoader(ids, batch_size=4, sampler=Order(), collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for batch in loader:
    loss = model(**batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

SHIFTS = """
class Shifts(Model):
    def __call__(self, input_ids, labels):
        return super().__call__(input_ids, labels.roll(1))
model.__class__ = Shifts
"""


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The script as it is."""
    return measured(tmp_path_factory.mktemp("usual"), SCRIPT.replace("SETUP", ""))


def origins_of(folder, usual, text):
    """Of the script with this setup, against the usual one; None if its loss does not differ."""
    other = measured(folder, text)
    assert usual.outcome == other.outcome == "fits", (usual.failure, other.failure)
    metrics = Catalog().metrics("script")
    found = compare([usual], [other], metrics, strategies=("script", "script"), terms=terms_of(usual.cell))
    reasons = [line.reason for line in found.verdict.lines if line.metric == "loss"]
    return reasons[0].origins if isinstance(reasons[0], StepDiffers) else None


@pytest.mark.parametrize(
    ("setup", "origins"),
    [
        ("IGNORED = 8", [Origin(metric="first_batches", names=["labels"])]),
        ("nn.init.zeros_(model.head.bias)", [Origin(metric="initial_weights", names=["head.bias"])]),
        ("SAME = 4 * 5", [Origin(metric="sample_order", since=2)]),
        (SHIFTS, [Origin(metric="first_inputs", names=["labels"])]),
    ],
    ids=["labels", "weights", "order", "inputs"],
)
def test_what_differs_is_named(tmp_path, usual, setup, origins):
    """Below the loss, which is red."""
    assert origins_of(tmp_path, usual, SCRIPT.replace("SETUP", setup)) == origins
