"""Ranks that a user's launcher starts: which of them speaks first, and what all of them get to see."""

import signal
import subprocess
import sys
import time

import psutil
import pytest
from small_scripts import measured

from perfsuite.cli.main import main

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


def test_any_rank_tells_how_many_there_are(tmp_path):
    """The launcher ends the others as soon as one has ended, perhaps before rank 0 has made a step."""
    told = measured(tmp_path, TRAIN.format(start=LATE), "torchrun --nproc-per-node 2")

    assert told.failure.world_size == 2


def test_a_rank_of_another_machine_is_left_alone(tmp_path, monkeypatch):
    """Its number is one of that machine: here, another process may have it."""
    ended = []
    monkeypatch.setattr("perfsuite.launch.scripts.socket.gethostname", lambda: "another")
    monkeypatch.setattr("perfsuite.launch.scripts.os.kill", lambda pid, signal: ended.append(pid))
    told = measured(tmp_path, TRAIN.format(start=""))

    assert told.failure is None
    assert min(ended) > 0  # a negative number is a group of processes, or all


def test_what_a_rank_raised_before_it_trained_is_said(tmp_path):
    """The launcher's own summary, which ends the log, names no error."""
    text = TRAIN.format(start="raise LookupError('no data for this rank')")
    told = measured(tmp_path, text, "torchrun --nproc-per-node 2")

    assert "before its first optimizer step: LookupError: no data for this rank" in told.failure.message


def test_far_more_ranks_than_cores_are_refused_before_they_import_torch(tmp_path, monkeypatch, cold):
    """Together they would take minutes, and all memory; the launcher's own summary comes later."""
    monkeypatch.setattr("perfsuite.launch.scripts.most_ranks", lambda: 2)
    told = measured(tmp_path, TRAIN.format(start=""), "torchrun --nproc-per-node 3")

    assert "The script starts 3 ranks, and this machine's cores allow 2: ask for fewer." in told.failure.message


def test_what_was_raised_before_a_pipe_is_said(tmp_path):
    """The status is that of the last command of a pipe: 0."""
    (tmp_path / "train.sh").write_text("python $1 2>&1 | tee log.txt")
    told = measured(tmp_path, "import torch\nraise LookupError('no data')", "bash train.sh")

    assert "ended with status 0 before its first optimizer step: LookupError: no data" in told.failure.message


@pytest.mark.slow
def test_a_script_hashes_alike_in_each_launch(tmp_path, monkeypatch, cold):
    """Else it goes through a set of labels in another order, and trains on other numbers."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first, second = (measured(tmp_path, TRAIN.format(start="")) for _ in range(2))

    assert first.readings["loss"].samples == second.readings["loss"].samples


def test_a_hash_seed_of_ones_own_stays(tmp_path, monkeypatch, cold):
    """The user chose it."""
    monkeypatch.setenv("PYTHONHASHSEED", "12")

    text = TRAIN.format(start="import os; assert os.environ['PYTHONHASHSEED'] == '12'")

    assert measured(tmp_path, text).failure is None


def test_a_sitecustomize_of_ones_own_runs_and_is_own_code(tmp_path, monkeypatch):
    """perfsuite's hides it on PYTHONPATH, then gives it its name back."""
    (tmp_path / "sitecustomize.py").write_text("SAID = 'mine'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    told = measured(tmp_path, TRAIN.format(start="import sitecustomize; assert sitecustomize.SAID == 'mine'"))

    assert told.failure is None
    assert "sitecustomize.py" in told.imports["."]


def test_a_script_ends_with_who_measures_it(tmp_path, cold):
    """Even if that is killed, and can end nothing itself."""
    told = tmp_path.with_suffix(".pid")
    start = f"import os; from pathlib import Path; Path({str(told)!r}).write_text(f'{{os.getpid()}} '); time.sleep(60)"
    (tmp_path / "train.py").write_text(TRAIN.format(start=start))
    command = [sys.executable, "-m", "perfsuite.cli.main", "run", "--", "torchrun", "--nproc-per-node", "1", "train.py"]
    runs = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_until(lambda: told.exists() and told.read_text().endswith(" "))
    runs.send_signal(signal.SIGKILL)
    runs.wait()

    wait_until(lambda: not psutil.pid_exists(int(told.read_text())))


def wait_until(reached):
    """Fails after minutes: another cell may be measured first."""
    deadline = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_launch_that_failed_before_its_ranks_were_known_is_headed_by_its_name(tmp_path, monkeypatch, capsys):
    """Not as a cell of one rank, which was a guess."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\nraise LookupError('no data')")

    assert main(["run", "--", "torchrun", "--nproc-per-node", "2", "train.py"]) == 1
    assert capsys.readouterr().out.startswith("train: The command ended")
