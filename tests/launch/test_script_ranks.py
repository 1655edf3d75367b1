"""Ranks that a user's launcher starts: which of them speaks first, and what all of them get to see."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings

STEPS = Settings(steps=1, warmup=1)
TRAIN = """
import time, torch
import torch.distributed as dist
{start}
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    loss = model(torch.full((4, 8), float(hash("name") % 1000))).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LATE = "dist.init_process_group('gloo'); dist.barrier(); time.sleep(30 * (dist.get_rank() == 0))"
Run = Callable[..., Measurement]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Measures a script with something at its start."""

    def run(start: str, launcher: str = "python", ranks: int = 1) -> Measurement:
        (tmp_path / "train.py").write_text(TRAIN.format(start=start))
        catalog = Catalog(extra_models=(script("train", f"{launcher} train.py", tmp_path),))
        with closing(Runner(catalog, STEPS)) as runner:
            return runner.measure(make_cell("train", ENGINE, f"cpu_x{ranks}", catalog))

    return run


def test_any_rank_tells_how_many_there_are(run):
    """The launcher ends the others as soon as one has ended, perhaps before rank 0 has made a step."""
    measured = run(LATE, "torchrun --nproc-per-node 2")

    assert measured.failure.world_size == 2


def test_a_script_hashes_alike_in_each_launch(run, monkeypatch):
    """Else it goes through a set of labels in another order, and trains on other numbers."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first, second = (run("") for _ in range(2))

    assert first.readings["loss"].samples == second.readings["loss"].samples


def test_a_hash_seed_of_ones_own_stays(run, monkeypatch):
    """The user chose it."""
    monkeypatch.setenv("PYTHONHASHSEED", "12")

    assert run("import os; assert os.environ['PYTHONHASHSEED'] == '12'").failure is None
