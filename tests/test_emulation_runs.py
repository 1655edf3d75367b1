"""Real runs on emulated GPUs: what they compute, allocate, count and refuse. They need torch's CUDA build."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.catalog.registry import Catalog

pytestmark = pytest.mark.emulated
SCRIPT = Path(__file__).with_name("emulated_torch.py")
GIB = 2**30


def emulate(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """``perfsuite emulate OPTIONS -- python emulated_torch.py NAME``."""
    command = [sys.executable, "-m", "perfsuite.cli", "emulate", *options, "--", sys.executable, str(SCRIPT), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def said(name: str, *options: str) -> object:
    """What the function returned."""
    done = emulate(name, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def counts(tmp_path: Path, name: str) -> dict:
    """The counts of the only process that used a device."""
    said(name, "--counts", str(tmp_path / "counts.json"))
    [path] = tmp_path.glob("counts.*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", ["h100", "a100_80g", "rtx3090"])
def test_torch_sees_the_catalogs_device(name):
    """Name, count, capability and memory."""
    device = Catalog().get("device", name)
    found = said("environment", "--gpus", f"{name}:3")

    assert found[0].startswith("emulated ")
    assert found[1] == 3
    assert found[2] + found[3] / 10 == device.compute_capability
    assert found[5] == device.usable_bytes


def test_small_tensors_are_computed():
    """28 operations give what they give on the CPU."""
    assert said("computed") == []


def test_nothing_is_computed_without_it():
    """--computed 0: the kernels leave zeros."""
    assert "matmul" in said("computed", "--computed", "0")


def test_random_numbers_are_zeros_and_leave_the_cpus_alone():
    assert said("random_numbers") == [True, True]


def test_fresh_memory_is_zero():
    """Also in a block that had contents before."""
    assert said("fresh_memory") == [7 * 2**20, 0, True]


def test_the_memory_runs_out_where_it_was_said():
    """All that is free can be allocated, and a block more cannot."""
    assert said("capacity", "--memory", "4GiB") == [4 * GIB, True, True]


def test_late_events_delay_reuse():
    """Without them a block is reused at once; with them some are not, always the same ones."""
    assert said("reuse") == 32
    late = said("reuse", "--late-events", "1")
    assert 0 < late < 32
    assert said("reuse", "--late-events", "1") == late


def test_a_replayed_graph_launches_its_kernels(tmp_path):
    """Two kernels, twice."""
    [section] = counts(tmp_path, "graph")["sections"]

    assert section["calls"]["cudaGraphLaunch"] == 2
    assert sum(section["kernels"].values()) == 4


def test_a_section_counts_what_is_between_its_ends(tmp_path):
    """The product with its shape as cuBLAS counts it, the copy's bytes, and the synchronization."""
    found = counts(tmp_path, "section")
    [section] = found["sections"]
    [product] = section["matmuls"]

    assert sorted((product["m"], product["n"], product["k"])) == [4, 5, 6]
    assert product["calls"] == 1
    assert sum(one["calls"] for one in found["total"]["matmuls"]) == 2
    assert section["copies"]["device to host"] == {"calls": 1, "bytes": 80}
    assert section["synchronizations"]["cudaDeviceSynchronize"] == 1
    assert found["device"].startswith("emulated ")


def test_the_profiler_sees_launches_within_their_operators():
    """Two additions and their kernels; stopping the profiler synchronizes once more."""
    launches, synchronizations = said("profiled")

    assert launches == ["aten::add", "aten::add"]
    assert synchronizations >= 1


def test_no_time_passes_on_the_device():
    assert said("elapsed") == 0


def test_an_unknown_call_ends_the_process_with_its_name():
    done = emulate("unknown")

    assert done.returncode == 134
    assert "of libcufft.so" in done.stderr
    assert "is not emulated, so this process ends" in done.stderr
