"""A schedule moves the learning rate once after each step, on every engine and by every loop that is not refused."""

import pytest
from parity import difference_of, readings_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

CELL = "gpt2_tiny-single+warmup_cosine+nodrop-cpu_x1-b4"
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp+warmup_cosine+nodrop",
        "zero2+warmup_cosine+nodrop",
        *(pytest.param(f"{engine}+warmup_cosine+nodrop", marks=slow) for engine in ("fsdp2", "fairscale_sdp", "zero3")),
    ],
)
def test_it_means_the_same_on_every_engine(measure, strategy):
    """Two ranks move the learning rate as one does, and not twice as fast. The first step's is zero."""
    single, parallel = readings_of(measure, CELL), readings_of(measure, f"gpt2_tiny-{strategy}-cpu_x2")

    assert difference_of(single, parallel) < 1e-6
    assert parallel["update_error"].value < 1e-5


def test_it_is_not_constant(measure):
    """The bound between engines tells the two apart."""
    moving, constant = readings_of(measure, CELL), readings_of(measure, CELL.replace("+warmup_cosine", ""))

    assert difference_of(constant, moving) > 1e-5


@pytest.mark.parametrize(
    "strategy",
    ["single+warmup_cosine", "single+muon+warmup_cosine", pytest.param("ddp+warmup_cosine+hf_trainer", marks=slow)],
)
def test_each_step_has_its_learning_rate(measure, strategy):
    """In all groups, from the first step on."""
    ranks = "cpu_x2" if strategy.startswith("ddp") else "cpu_x1"

    readings_of(measure, f"gpt2_tiny-{strategy}-{ranks}", "schedules:moves_once")


def test_a_schedule_that_stands_still_is_seen(measure):
    """What the check above finds, and the losses show."""
    found = measure(CELL, "schedules:stands_still", "schedules:moves_once")

    assert found.outcome == "failed"
    assert "AssertionError in optimizer of step 2" in found.failure.message


@slow
def test_zero_resumes_it(measure):
    """DeepSpeed saves the schedule with its engine."""
    readings = readings_of(measure, "gpt2_tiny-zero2+bf16+warmup_cosine+ds_checkpoint-cpu_x2")

    assert readings["wrongly_loaded_tensors"].value == readings["wrongly_resumed_steps"].value == 0


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("gpt2_tiny-ddp+warmup_cosine+accelerate-cpu_x2", "once for each rank"),
        ("gpt2_tiny-single+warmup_cosine+dcp-cpu_x1", "save no schedule"),
        ("gpt2_tiny-single+schedule_free+warmup_cosine-cpu_x1", "in place of a schedule"),
        ("gpt2_tiny-megatron+warmup_cosine-cpu_x1", "schedules of its own"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What would move the learning rate otherwise is refused before anything runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
