"""Small training scripts that a test writes and measures, as ``perfsuite run`` does with a user's."""

from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings

START = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
def step(scale=1.0):
    loss = model(torch.randn(4, 8)).pow(2).mean() * scale
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOOP = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(60):
    optimizer.zero_grad()
    net(torch.rand(8, 32)).square().mean().backward()
    optimizer.step()
"""
FEW = Settings(steps=1, warmup=1)


def measured(
    folder: Path, text: str, launcher: str = "python", ranks: int = 1, settings: Settings = FEW
) -> Measurement:
    """One launch of a script with this text."""
    (folder / "train.py").write_text(text)
    catalog = Catalog(extra_models=(script("train", f"{launcher} train.py", folder),))
    with closing(Runner(catalog, settings)) as runner:
        return runner.measure(make_cell("train", ENGINE, f"cpu_x{ranks}", catalog))
