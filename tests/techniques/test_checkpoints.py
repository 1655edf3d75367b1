"""Checkpoints: each format resumes to the bit, on one, two and four ranks, and its bytes are those of the tensors."""

import json

import other_ranks
import pytest
from sampling import slow_unless

PARAMETERS = 141_056  # gpt2_tiny's
TENSORS = 28
ALL = 4 * TENSORS + 1  # weights, Adam's two moments and its count of steps, and a tied weight's second name
CELLS = (
    *(f"gpt2_tiny-{cell}" for cell in ("single+dcp-cpu_x1", "fsdp2+dcp-cpu_x2", "fsdp2+dcp-cpu_x4")),
    *(f"gpt2_tiny-fsdp2+dcp_async-cpu_x{ranks}" for ranks in (1, 2, 4)),
    *(
        f"gpt2_tiny-{cell}"
        for cell in ("single+safetensors-cpu_x1", "ddp+safetensors-cpu_x2", "fsdp2+safetensors-cpu_x4")
    ),
    *(f"gpt2_tiny-zero2+ds_checkpoint-cpu_x{ranks}" for ranks in (2, 4)),
    *(f"gpt2_tiny-zero{stage}+bf16+ds_checkpoint-cpu_x2" for stage in (1, 3)),
    *("llama_tiny-tp+dcp-cpu_x2", "gpt2_tiny-ddp+dcp-cpu_x2"),
)
QUICK = ("gpt2_tiny-fsdp2+dcp_async-cpu_x2", "gpt2_tiny-single+safetensors-cpu_x1")
WRONG = ("wrongly_loaded_tensors", "wrongly_resumed_steps", "wrongly_reread_tensors", "blocked_saves")


@pytest.mark.parametrize("cell", slow_unless(QUICK.__contains__, CELLS))
def test_training_resumes_to_the_bit(measure, cell):
    """Weights, optimizer state and the next losses are those of the unbroken run, and so is what rank 0 reads alone."""
    measurement = measure(cell)

    assert measurement.outcome == "fits", measurement.failure
    wrong = {name: measurement.readings[name].value for name in WRONG if name in measurement.readings}
    assert wrong == dict.fromkeys(wrong, 0)
    assert {"wrongly_loaded_tensors", "wrongly_resumed_steps"} <= wrong.keys()
    assert ("wrongly_reread_tensors" in wrong) == (measurement.world_size > 1)
    assert ("blocked_saves" in wrong) == ("async" in cell)


def test_bytes_on_disk_are_the_tensors(measure):
    """Weights and Adam's two moments in fp32; the rest is names and headers."""
    size = measure("gpt2_tiny-single+safetensors-cpu_x1").readings["checkpoint_bytes"]

    assert 12 * PARAMETERS < size.value < 12.5 * PARAMETERS
    assert 4 * PARAMETERS < size.parts[".safetensors"] < 4.1 * PARAMETERS


@pytest.mark.parametrize("name", ["save_seconds", "save_stall_seconds", "load_seconds"])
def test_a_shown_time_has_no_samples(measure, name):
    """A baseline of several launches would be refused: its number must be the median of its samples, or the last."""
    assert measure("gpt2_tiny-single+safetensors-cpu_x1").readings[name].samples == []


def test_stall_is_within_the_save(measure):
    """The training waits for the copies alone: the rest of the save is beside it."""
    readings = measure("gpt2_tiny-fsdp2+dcp_async-cpu_x2").readings

    assert 0 < readings["save_stall_seconds"].value < readings["save_seconds"].value
    assert readings["load_seconds"].value > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "onto", "tensors"),
    [
        ("fsdp2+dcp-cpu_x2", "fsdp2+dcp-cpu_x4", ALL),
        ("fsdp2+dcp-cpu_x4", "single+dcp-cpu_x1", ALL),
        ("single+safetensors-cpu_x1", "fsdp2+safetensors-cpu_x4", TENSORS),
    ],
)
def test_a_training_on_other_ranks_loads_it(measure, of, onto, tensors):
    """Every rank its own shards of the weights, and of the optimizer's state."""
    measure(f"gpt2_tiny-{of}", "other_ranks:keeps")
    found = measure(f"gpt2_tiny-{onto}", "other_ranks:loads")

    assert found.outcome == "fits", found.failure
    assert json.loads(other_ranks.WRONG.read_text()) == {"tensors": tensors, "wrong": []}


@pytest.mark.slow
def test_zero_refuses_other_ranks(measure):
    """DeepSpeed itself does, and says why: red, not a training with a part of its state."""
    measure("gpt2_tiny-zero2+ds_checkpoint-cpu_x2", "other_ranks:keeps")
    found = measure("gpt2_tiny-zero2+ds_checkpoint-cpu_x4", "other_ranks:loads")

    assert found.outcome == "failed"
    assert "DP world size of 2" in found.failure.message
