"""Every engine on emulated GPUs, and torch's operators, random numbers, profiler and events there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.emulated
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "emulated_torch.py"
GPUS = f"{os.environ.get('EMULATED', 'h100')}:2"
TIMES = ("_seconds", "_per_second", "flops_per_rank", "mfu", "hfu", "loss", "norm")


def emulate(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """``perfsuite emulate --gpus GPUS OPTIONS -- python WORDS``."""
    command = [
        sys.executable,
        "-m",
        "perfsuite.cli.main",
        "emulate",
        "--gpus",
        GPUS,
        *options,
        "--",
        sys.executable,
        *words,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)


def said(name: str, *options: str) -> Any:
    """What a function of emulated_torch.py returned."""
    done = emulate(str(SCRIPT), name, options=options)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_small_tensors_are_computed():
    """30 operations give what they give on the CPU."""
    assert said("computed") == []


def test_nothing_is_computed_without_it():
    """computed=0: the kernels leave zeros."""
    assert "matmul" in said("computed", "--set", "computed=0")


def test_random_numbers_are_zeros_and_leave_the_cpus_alone():
    """The CPU's next numbers are those of a run without the GPU's."""
    assert said("random_numbers") == [True, True]


def test_the_profiler_sees_launches_within_their_operators():
    """Two additions, with a kernel each, and the synchronization after them."""
    launches, synchronizations = said("profiled")

    assert launches == ["aten::add", "aten::add"]
    assert synchronizations >= 1


def test_no_time_passes_on_the_device():
    """Between two events."""
    assert said("elapsed") == 0


def test_every_engine_trains(tmp_path):
    """All cells of benchmarks/test_emulated_cells.py fit, and say that they are emulated; none has a time or a loss."""
    report = tmp_path / "report.jsonl"
    which = ["-k", "x2 or single or forward or generate"]  # sharded: on two alone
    which += ["--perf-steps=2", "-o", "perf_warmup=1"]
    done = emulate("-m", "pytest", "--perf", f"--perf-report={report}", "benchmarks/test_emulated_cells.py", *which)
    assert done.returncode == 0, done.stdout[-5000:]
    found = [json.loads(line)["measurement"] for line in report.read_text().splitlines()]

    assert len(found) >= 20
    assert {one["outcome"] for one in found} == {"fits"}
    assert all(one["machine"]["device"].startswith("emulated ") for one in found)
    assert [one["cell"] for one in found if "peak_memory_bytes" not in one["readings"]] == []
    assert [name for one in found for name in one["readings"] if name.endswith(TIMES)] == []
