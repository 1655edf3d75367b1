"""device_map on two emulated GPUs of one process: parity with single, the proof of its layers, memory of each GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "emulated_device_map.py"
MIB = 2**20
SPREAD = "gpt2_tiny_l4-device_map-h100_x2"


def measured(folder: Path, *cells: str, options: tuple[str, ...] = ()) -> list[dict]:
    """What emulated_device_map.py says of each cell."""
    command = [sys.executable, "-m", "perfsuite.cli.main", "emulate", "--gpus", "h100:2", *options, "--"]
    command += [sys.executable, str(SCRIPT), str(folder), *cells]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("model", ["gpt2_tiny_l4", "t5_tiny"])
def test_it_agrees_with_single(tmp_path, model):
    """Every operator is computed, by the CPU's kernels, from the same weights: the loss of each step, and how far each
    parameter is from where it began, to the bit.
    """
    recipe = "nodrop+eager+adamw_loop"
    cells = [f"{model}-single+{recipe}-h100_x1", f"{model}-device_map+{recipe}-h100_x2"]
    found = measured(tmp_path, *(f"{one},numbered" for one in cells), options=("--set=computed=1000000000",))
    assert [one["outcome"] for one in found] == ["fits", "fits"], found
    numbers = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(tmp_path.iterdir(), key=lambda path: "device_map" in path.name)
    ]
    (losses, aways), (spread_losses, spread_aways) = (zip(*one, strict=True) for one in numbers)

    assert len(losses) >= 4
    assert all(0 < before < after for before, after in zip(aways[0], aways[-1], strict=True))  # every weight is trained
    assert spread_losses == losses
    assert spread_aways == aways


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> dict[str, dict]:
    """The cell without a fault, and with each."""
    faults = ["", "moved", "together", "leaks_on_the_last", "last_is_small", "full_first", "full_last"]
    found = measured(tmp_path_factory.mktemp("cells"), *(f"{SPREAD},{one}".rstrip(",") for one in faults))
    return dict(zip(faults, found, strict=True))


def test_one_rank_trains_on_both_devices(cells):
    """The evidence: two layers and more than a byte of weights on each; together they are the model's."""
    engine = cells[""]["engine"]
    layers, weights = (
        [engine[f"{what} on cuda:{number}"] for number in (0, 1)] for what in ("layers", "bytes of weights")
    )

    assert (cells[""]["outcome"], cells[""]["ranks"], cells[""]["gpus"], engine["devices"]) == ("fits", 1, 2, 2)
    assert sum(layers) == 4
    assert min(layers) >= 1
    assert cells[""]["readings"]["parameters_bytes"][1] == weights


def test_memory_is_counted_on_each_device(cells):
    """AdamW's state in fp32 is twice a device's parameters. The peak is the fuller one's, with its parts."""
    readings = cells[""]["readings"]
    peak, peaks, parts = readings["peak_memory_bytes"]
    parameters, state = readings["parameters_bytes"][1], readings["optimizer_state_bytes"][1]

    assert len(peaks) == 2
    assert (peak, sum(parts.values())) == (max(peaks), max(peaks))
    for number in (0, 1):
        assert 2 * parameters[number] <= state[number] < 2.01 * parameters[number]  # and a step's number in each
        assert peaks[number] > 3 * parameters[number]
        assert peaks[number] <= readings["reserved_memory_bytes"][1][number]


@pytest.mark.parametrize(("fault", "number"), [("full_first", 0), ("full_last", 1)])
def test_bytes_on_one_device_are_that_devices(cells, fault, number):
    """64 MiB in every forward: on the device that allocates them, and on no other."""
    before, after = (cells[one]["readings"]["peak_memory_bytes"][1] for one in ("", fault))

    assert after[1 - number] == before[1 - number]
    assert after[number] > 64 * MIB
    assert cells[fault]["readings"]["peak_memory_bytes"][0] == after[number]


def test_a_leak_on_the_last_device_is_red(cells):
    assert cells["leaks_on_the_last"]["outcome"] == "failed"
    assert "Memory leaks" in cells["leaks_on_the_last"]["message"]


def test_the_last_device_may_run_out_of_memory(cells):
    """It is an outcome, and says what was alive there."""
    assert cells["last_is_small"]["outcome"] == "oom"
    assert "GPU 1 has a total capacity" in cells["last_is_small"]["message"]


@pytest.mark.parametrize("fault", ["moved", "together"])
def test_a_layer_on_another_device_is_red(cells, fault):
    """One that accelerate does not know of, and all on one device, which trains."""
    assert cells[fault]["outcome"] == "failed", cells[fault]


def test_a_model_on_one_device_is_the_wrong_engine(cells):
    assert "device_map must hold" in cells["together"]["message"]
    assert "but it is on cuda:0" in cells["together"]["message"]


def test_what_it_goes_with(tmp_path):
    """Low precision, clipping, accumulation, checkpointing, adapters, pruning, optimizers of other libraries."""
    recipes = ("bf16+acc2", "fp16+clip", "pure_bf16", "ckpt", "lora", "prune", "adamw_fused", "adafactor", "adamw8bit")
    found = measured(tmp_path, *(f"gpt2_tiny_l4-device_map+{one}-h100_x2" for one in recipes))
    failed = {recipe: one["message"] for recipe, one in zip(recipes, found, strict=True) if one["outcome"] != "fits"}

    assert failed == {}
