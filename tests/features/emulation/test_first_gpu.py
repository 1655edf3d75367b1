"""benchmarks/first_gpu.py, whole, on an emulated GPU: all parts of two tiny cells, the page, and a second start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated

ROOT = Path(__file__).parents[3]
CELLS = ("gpt2_tiny-single+bf16-h200_x1", "t5_tiny-single+bf16+ckpt-h200_x1")


def first_gpu(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfsuite.cli.main", "emulate", "--gpus", "h200", "--", sys.executable]
    command += [str(ROOT / "benchmarks" / "first_gpu.py"), "measure", str(folder), "--cells", *CELLS]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=variables)


def test_all_parts_run_and_a_second_start_measures_nothing_again(tmp_path):
    """Bytes and capacities have numbers, times have the reason why they are absent, and the page shows all."""
    first = first_gpu(tmp_path)
    runs = (tmp_path / "PartRun.jsonl").read_text()
    probes = [json.loads(line) for line in (tmp_path / "Probe.jsonl").read_text().splitlines()]
    page = (tmp_path / "first_gpu.html").read_text()
    second = first_gpu(tmp_path)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert {(one["cell"], one["fits"]) for one in probes} == {(cell, fits) for cell in CELLS for fits in (True, False)}
    assert all(cell in page for cell in CELLS)
    assert "an emulated GPU has no times" in page
    assert (tmp_path / "PartRun.jsonl").read_text() == runs
