"""Slow code in a file that the model imports: from a clone's first baseline to the red cell that names the file."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from package_index import Index, Upload, wheel

from perfsuite.environments.environments import with_releases

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


def run(folder: Path, *options: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """`pytest --perf` there."""
    command = [python, "-m", "pytest", "--perf", "-q", "-p", "no:cacheprovider", *options]
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
    assert "although no change was seen" not in slow.stdout


@pytest.mark.slow
def test_slow_code_outside_of_the_repository_is_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sibling folder on PYTHONPATH. It was "machine", although nothing changed. No trial can take it back."""
    repository, sibling = tmp_path / "repository", tmp_path / "sibling"
    for folder in (repository, sibling):
        folder.mkdir()
    for name, text in FILES.items():
        ((sibling if name == "helper.py" else repository) / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(sibling))
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    commit(repository)
    assert run(repository, "--perf-update=new").returncode == 0
    commit(repository)
    (sibling / "helper.py").write_text("import time\n\n\ndef work(x):\n    time.sleep(0.05)\n    return x\n")
    slow = run(repository, "-o", "perf_open=fail")

    assert slow.returncode == 1
    assert "cannot be reverted here: it is outside of the repository" in slow.stdout
    assert "helper.py " in slow.stdout
    assert "although no change was seen" not in slow.stdout


@pytest.mark.slow
def test_a_slow_release_of_a_small_library_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of those that a measurement always named. The trial installs the older release and names it."""
    slow = "import time\n\n\ndef work(x):\n    time.sleep(0.05)\n    return x\n"
    sources = {"1.0": FILES["helper.py"], "1.1": slow}
    wheels = [wheel(tmp_path, "helper", release, files={"helper.py": text}) for release, text in sources.items()]
    date = datetime(2026, 1, 1, tzinfo=UTC)
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in FILES.keys() - {"helper.py"}:
        (repository / name).write_text(FILES[name])
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    commit(repository)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Index([Upload(path, date) for path in wheels]).serve() as index:
        index.configure(monkeypatch, tmp_path / "uv")
        old, new = (with_releases([f"helper=={release}"]).python for release in sources)
        assert run(repository, "--perf-update=new", python=old).returncode == 0
        commit(repository)
        found = run(repository, python=new)

    assert found.returncode == 1
    assert "trial: caused by helper 1.0 -> 1.1" in found.stdout
