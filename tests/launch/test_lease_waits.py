"""Real cells of one rank and of four under ``pytest -n 4``, on four emulated GPUs: the large one is not passed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated

# Writes who asked for how many devices, and when it got them and gave them back.
WATCH = """
import contextlib, json, time
from perfsuite.launch import places

lease = places.lease

@contextlib.contextmanager
def watched(candidates, count, islands=()):
    asked = time.monotonic()
    with lease(candidates, count, islands) as held:
        got = time.monotonic()
        yield held
    with open("waits.jsonl", "a") as file:
        print(json.dumps({"ranks": count, "held": held, "times": [asked, got, time.monotonic()]}), file=file)

places.lease = watched
"""
SMALL = ["bf16", "fp16", "pure_bf16", "tf32", "sgd", "sgd_momentum", "clip", "nodrop", "acc2", "adamw_loop"]
CELLS = """
import pytest

@pytest.mark.perf_cell({})
def test_cell(perf_cell):
    perf_cell.check()
"""


def test_a_large_cell_waits_no_longer_than_the_longest_small_one(tmp_path: Path) -> None:
    """Ten cells want one GPU each. The large one comes when some of them run, and no later one passes it."""
    cells = [f"gpt2_tiny-single+{one}-h100_x1" for one in SMALL]
    cells.insert(6, "gpt2_tiny-ddp-h100_x4")
    (tmp_path / "conftest.py").write_text(WATCH)
    (tmp_path / "test_cells.py").write_text(CELLS.format(", ".join(map(repr, cells))))
    emulate = [sys.executable, "-m", "perfsuite.cli.main", "emulate", "--gpus=h100:4", "--"]
    options = ["-n4", "-p", "no:cacheprovider", "--perf", "--perf-steps=2"]
    options += ["-o", "perf_warmup=1", "-o", "perf_launches=1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    pytest_there = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run([*emulate, *pytest_there], cwd=tmp_path, env=environment, capture_output=True, text=True)
    waits = [json.loads(line) for line in (tmp_path / "waits.jsonl").read_text().splitlines()]
    large = next(one for one in waits if one["ranks"] == 4)
    small = [one for one in waits if one["ranks"] == 1]
    longest = max(end - got for one in small for _, got, end in [one["times"]])

    assert "11 skipped: emulated fits" in done.stdout, done.stdout  # none is held against a real GPU
    assert (len(small), sorted(large["held"])) == (10, [0, 1, 2, 3])
    assert large["times"][1] - large["times"][0] <= longest
