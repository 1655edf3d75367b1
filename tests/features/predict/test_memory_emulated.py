"""CUDA's memory: predictions against what emulated GPUs measured, and the capacity of the caching allocator."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.features.predict.traced_memory import predict
from perfsuite.rank.steps import kinds_of

LINES = Path(__file__).parents[3] / "docs" / "memory_emulated.jsonl"
CELLS = {
    "scalars of AdamW and of attention's dropout on the host": "gpt2_tiny-single+bf16-h100_x1",
    "statistics of layer norms in fp32": "gpt2_tiny-zero2+bf16-h100_x2",
    "a log_softmax from bf16 to fp32": "t5_tiny-single+bf16-h100_x1",
    "cuDNN's attention": "llama_tiny-single+bf16-h100_x1",
    "autocast that float8 layers ask for themselves": "mistral_tiny-single+fp8+ckpt-h100_x1",
    "a number that is made on the device": "gpt2_tiny_l4-pp_naive+bf16-h100_x2",
}


@pytest.fixture(scope="module")
def predicted(catalog):
    cells = [parse_cell(one, catalog) for one in CELLS.values()]
    return {cell.id: one for cell, one in zip(cells, predict(cells, catalog, processes=2), strict=True)}


@pytest.mark.parametrize("reason", CELLS)
def test_a_prediction_is_equal_to_what_an_emulated_gpu_measured(predicted, reason):
    """To the byte, and so is what the allocator reserves; category by category, too, without messages between stages,
    whose buffers a trace knows and an emulated run takes for the batch.
    """
    measured = {line["cell"]: line for line in map(msgspec.json.decode, LINES.read_bytes().splitlines())}
    line, one = measured[CELLS[reason]], predicted[CELLS[reason]]

    assert sum(one.parts.values()) == sum(line["parts"].values())
    assert one.parts == line["parts"] or "-pp_" in one.cell
    assert one.reserved_bytes == line["reserved_bytes"]


@pytest.mark.parametrize(("device", "compiles", "first"), [("cuda", True, "compiling"), ("cpu", True, "traced")])
def test_the_step_that_compiles_is_recorded_on_a_cpu_only(device, compiles, first):
    """On a GPU Inductor tries kernels with memory of its own. Every other step is the same."""
    assert kinds_of(_session(device, compiles))[0] == first
    assert kinds_of(_session(device, False))[0] == "traced"


def _session(device, compiles):
    engine = SimpleNamespace(process="training", own=False)
    return SimpleNamespace(
        compiles=compiles,
        strategy=SimpleNamespace(engine=engine),
        job=SimpleNamespace(device=device, warmup=0, traces="first.", times_only=False),
    )


CAP = """
import torch
from perfsuite.rank.memory.cuda_history import PAGE, CudaHistory

def fits(size):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()

source = CudaHistory()
assert source.reserved_bytes == 0
for capacity in (PAGE, 11 * PAGE, 1000 * PAGE):
    size = min(capacity, 2**20) if capacity == PAGE else capacity
    source.set_capacity(capacity)
    assert fits(size)
    source.set_capacity(capacity - 1)
    assert not fits(size)
source.set_capacity(None)
source.reset_peak()
kept = torch.empty(11 * PAGE, dtype=torch.uint8, device="cuda")
del kept
left = source.free_bytes
torch.cuda.empty_cache()
other = torch.empty(left, dtype=torch.uint8, device="cuda")
kept = torch.empty(11 * PAGE, dtype=torch.uint8, device="cuda")
assert not fits(PAGE)
print("done")
"""


@pytest.mark.emulated
def test_a_capacity_caps_tensors_and_headroom_is_what_can_be_allocated():
    """Perfsuite's workspaces count in neither. One byte less than a tensor's pages, and it does not fit; with what was
    left allocated too, everything still fits, and not one page more.
    """
    command = [
        sys.executable,
        "-m",
        "perfsuite.cli.main",
        "emulate",
        "--gpus",
        "h100:1",
        "--",
        sys.executable,
        "-c",
        CAP,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]
