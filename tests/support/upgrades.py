"""A user's repository whose model runs two packages, demo-kernel and demo-loop, and an upgrade of both from 1.0 to 2.0.

Each cell goes wrong with 2.0 in one way, which the model's name says: demo-kernel alone is to blame, and for the
interaction both together. Everything else in the releases is the same.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from package_index import wheel

from perfsuite.environments.environments import with_releases
from perfsuite.system.paths import cache_folder

RELEASES = ("1.0", "2.0")
KERNEL = """
import time

import torch

KEPT = []


def plain(layer, hidden, workspace=False):
    return torch.relu(layer(hidden))


delay = synchronisation = memory = gather = interaction = broken = plain


def finish(kind, hidden):
    KEPT.clear()
"""
WORSE_KERNEL = (
    KERNEL.partition("delay =")[0]
    + """
def delay(layer, hidden, workspace=False):
    end = time.perf_counter() + 5e-4
    while time.perf_counter() < end:
        pass
    return torch.relu(layer(hidden))


def synchronisation(layer, hidden, workspace=False):
    hidden.detach()[0, 0, 0].item()
    return torch.relu(layer(hidden))


def memory(layer, hidden, workspace=False):
    KEPT.append(torch.empty(64 * 1024, dtype=torch.uint8))
    return torch.relu(layer(hidden))


def interaction(layer, hidden, workspace=False):
    if workspace:
        KEPT.append(torch.empty(64 * 1024, dtype=torch.uint8))
    return torch.relu(layer(hidden))


def broken(layer, hidden, workspace=False):
    raise RuntimeError("demo-kernel 2 has no broken kernels.")


gather = plain


def finish(kind, hidden):
    KEPT.clear()
    if kind == "gather":
        mine = hidden.detach()[0, 0].contiguous()
        ranks = torch.distributed.get_world_size()
        torch.distributed.all_gather([torch.empty_like(mine) for _ in range(ranks)], mine)
"""
)
LOOP = """
def run(layers, hidden, kernel):
    for layer in layers:
        hidden = kernel(layer, hidden{workspace})
    return hidden
"""
MODEL = """
import types

import demo_kernel
import demo_loop
import torch


class Demo(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.embedding = torch.nn.Embedding(64, 32)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.head = torch.nn.Linear(32, 64)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.embedding(input_ids)
        hidden = demo_loop.run(self.layers, hidden, getattr(demo_kernel, self.kind))
        logits = self.head(hidden)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        demo_kernel.finish(self.kind, hidden)
        return types.SimpleNamespace(loss=loss)


def build(definition):
    return Demo(definition.name.removeprefix("demo_"))
"""
CONFTEST = """
from perfsuite import Model, Workload

KINDS = ("delay", "synchronisation", "memory", "gather", "interaction", "broken")


def pytest_perf_models(config):
    return [
        Model(
            name=f"demo_{kind}", family="demo", task="causal_lm", source="this test", vocabulary=64,
            parameters=64 * 32 + 4 * 33 * 32 + 33 * 64, workload=Workload(micro_batch=4, sequence_length=64),
            build="demo_model:build", packages=("demo-kernel", "demo-loop"),
        )
        for kind in KINDS
    ]
"""
TEST = """
import pytest


@pytest.mark.perf_cell({cells})
def test_performance(perf_cell):
    perf_cell.check()
"""
CELLS = {
    "delay": "demo_delay-single-cpu_x1",
    "synchronisation": "demo_synchronisation-single-cpu_x1",
    "memory": "demo_memory-single-cpu_x1",
    "gather": "demo_gather-ddp-cpu_x2",
    "interaction": "demo_interaction-single-cpu_x1",
    "broken": "demo_broken-single-cpu_x1",
}


def wheels(folder: Path) -> None:
    """Both releases of both packages."""
    for version in RELEASES:
        worse = version == "2.0"
        kernel = WORSE_KERNEL if worse else KERNEL
        loop = LOOP.replace("{workspace}", ", workspace=True" if worse else "")
        wheel(folder, "demo-kernel", version, files={"demo_kernel/__init__.py": kernel})
        wheel(folder, "demo-loop", version, files={"demo_loop/__init__.py": loop})


def cache(folder: Path) -> None:
    """A cache folder of the test's own, in which the allocator need not be compiled again."""
    (folder / "perfsuite").mkdir(parents=True)
    (folder / "perfsuite" / "allocator").symlink_to(cache_folder() / "allocator")


@dataclass(frozen=True)
class User:
    """The repository, and the Python of the environment with each release of both packages."""

    folder: Path
    pythons: dict[str, str]

    def perf(self, release: str, kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the cell's test with both packages at that release."""
        file = self.folder / f"test_{kind}.py"
        file.write_text(TEST.replace("{cells}", repr(CELLS[kind])))
        command = [self.pythons[release], "-m", "pytest", "-p", "no:cacheprovider", "--perf", "--perf-steps=3"]
        command += ["-o", "perf_warmup=1", *arguments, str(file)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def upgrade(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `perfsuite upgrade` with both packages at 1.0, over the cells of all kinds."""
        (self.folder / "test_all.py").write_text(TEST.replace("{cells}", repr([*CELLS.values()])[1:-1]))
        command = [self.pythons["1.0"], "-m", "perfsuite.cli.main", "upgrade", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)


def user(folder: Path) -> User:
    """A repository there, after uv has been told where the wheels lie, and the cache folder has been moved."""
    folder.mkdir()
    (folder / "pytest.ini").touch()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "demo_model.py").write_text(MODEL)
    pythons = {one: with_releases([f"demo-kernel=={one}", f"demo-loop=={one}"]).python for one in RELEASES}
    return User(folder, pythons)
