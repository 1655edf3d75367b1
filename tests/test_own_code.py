"""Slow code in a file that the model imports: from a clone's first baseline to the red cell that names the file."""

import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "helper.py": "def work(x):\n    return x\n",
    "model.py": """\
from types import SimpleNamespace

import torch

import helper


class Net(torch.nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, 16)
        self.out = torch.nn.Linear(16, vocabulary, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.out(helper.work(self.embed(input_ids)))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(loss=loss, logits=logits)


def build(definition):
    return Net(definition.vocabulary)
""",
    "conftest.py": """\
from perfsuite import Model, Workload


def pytest_perf_models(config):
    workload = Workload(micro_batch=2, sequence_length=16)
    return [Model(name="mine", family="mine", task="causal_lm", source="a test", workload=workload, parameters=2048,
                  vocabulary=64, build="model:build")]
""",
    "test_perf.py": """\
import pytest


@pytest.mark.perf_cell("mine-single-cpu_x1")
def test_it(perf_cell):
    perf_cell.check()
""",
    ".gitignore": "__pycache__/\n",
}


def commit(folder: Path) -> None:
    """Everything that is there."""
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, "commit", "-qm", "a commit"], cwd=folder, check=True)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`pytest --perf` there."""
    command = [sys.executable, "-m", "pytest", "--perf", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_slow_code_in_an_imported_file_is_red(tmp_path: Path) -> None:
    """The committed sleep is in no file of the model's module. The trial finds it and names the file."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path)
    assert run(tmp_path, "--perf-update=new").returncode == 0
    commit(tmp_path)
    (tmp_path / "helper.py").write_text("import time\n\n\ndef work(x):\n    time.sleep(0.05)\n    return x\n")
    commit(tmp_path)
    slow = run(tmp_path)

    assert slow.returncode == 1
    assert "(helper.py)" in slow.stdout
    assert "trial: caused by your code" in slow.stdout
    assert "although nothing changed" not in slow.stdout
