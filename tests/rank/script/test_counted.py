"""What is counted of a script's own model, which may have operators that nobody knows."""

import pytest
from small_scripts import measured

from perfsuite.run.runner import Settings

NO_MATMUL = """
import torch

weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    optimizer.zero_grad()
    (weight * 2).sum().backward()
    optimizer.step()
"""
MAPPED = """
torch.save({"weight": torch.ones(64, 64)}, "weights.pt")
model = torch.nn.Linear(64, 64, bias=False, device="meta")
model.load_state_dict(torch.load("weights.pt", mmap=True), assign=True)
weight = model.weight
"""
LEAK = (
    NO_MATMUL
    + """
    kept = [*kept, torch.zeros(1)] if step else [torch.zeros(10_000)]
    if step == 8:
        kept[0] = None
"""
)


def test_a_leak_is_found_beside_what_is_freed(tmp_path):
    """Four bytes in each step, and once 40,000 fewer, after the recorded steps."""
    known = measured(tmp_path, LEAK, settings=Settings(steps=3, warmup=1))

    assert known.readings["grown_bytes"].value == 4
    assert known.readings["grown_bytes"].suspects == {"kept: aten::zeros @ (other)": 4}


def test_a_longer_batch_is_no_growth(tmp_path):
    """It is freed; what is kept beside it is found to the byte."""
    text = LEAK + "    batch, following = following if step else None, torch.zeros(1_000 * step)\n"

    assert measured(tmp_path, text, settings=Settings(steps=3, warmup=1)).readings["grown_bytes"].value == 4


def test_parameters_that_a_file_is_mapped_to_are_counted(tmp_path):
    """No allocator sees them, and a step needs them in memory all the same."""
    text = NO_MATMUL.replace("weight = torch.nn.Parameter(torch.ones(8))", MAPPED).replace(
        "(weight * 2)", "model(torch.ones(1, 64))"
    )
    readings = measured(tmp_path, text).readings

    assert readings["parameters_bytes"].value == 4 * 64 * 64
    assert readings["peak_memory_bytes"].parts["parameters"] == 4 * 64 * 64
    assert readings["grown_bytes"].value == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_workers_are_at_the_peak_too(tmp_path, workers):
    """They lie in shared memory, which no allocator sees. The peak is the same wherever they are made."""
    loop = f"for batch in torch.utils.data.DataLoader(torch.ones(320, 64), batch_size=8, num_workers={workers}):"
    text = NO_MATMUL.replace("for step in range(40):", loop).replace("(weight * 2)", "(batch * 2 * weight.sum())")
    readings = measured(tmp_path, text).readings

    assert readings["peak_memory_bytes"].parts["batch"] == 4 * 8 * 64
    assert readings["grown_bytes"].value == 0


def test_what_perfsuite_reads_of_a_step_is_not_the_scripts(tmp_path):
    """It reads the loss of each step; the script reads it in the other text, and waits for it."""
    reads = NO_MATMUL + "    float(weight.sum())\n"

    assert measured(tmp_path, NO_MATMUL).readings["values_read"].value == 0
    assert measured(tmp_path, reads).readings["values_read"].value == 1


def test_a_model_without_a_known_operator_has_no_flops(tmp_path):
    """It is measured all the same; MFU divides by its FLOPs."""
    known = measured(tmp_path, NO_MATMUL)

    assert known.failure is None
    assert "no operator that torch's counter of FLOPs knows" in known.uncounted["model_flop"]
    assert "mfu" not in known.readings
