"""Two runs in a row measure the same, to the byte and to the last bit of the loss."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell

CELLS = [
    "t5_tiny-single+bf16+ckpt-cpu_x1",
    "gpt2_tiny-ddp-cpu_x2",
    "t5_tiny-zero2+acc2-cpu_x2",
    "llama_tiny-zero3+bf16-cpu_x2",
]


@pytest.mark.parametrize("cell", slow_unless(lambda cell: "zero3" in cell, CELLS))
def test_two_runs_are_identical(measure, runner, catalog, cell):
    """Every exact metric, its parts and every rank's value, and every loss, are equal in two runs."""
    first = measure(cell).readings
    metrics = [one.name for one in catalog.metrics("training") if one.hold == "exact" and one.name in first]
    second = runner.measure(parse_cell(cell, catalog)).readings

    assert len(metrics) >= 9
    assert {name: first[name] for name in metrics} == {name: second[name] for name in metrics}
    assert first["loss"].samples == second["loss"].samples


def test_what_the_cpu_cannot_run_is_unsupported_and_not_failed(measure):
    """DeepSpeed refuses fp16 on a CPU without the instructions: an outcome with a reason."""
    measurement = measure("gpt2_tiny-zero2+fp16-cpu_x2")

    assert measurement.outcome in ("fits", "unsupported")
    assert measurement.outcome == "fits" or "lacks the instructions" in measurement.failure.message


def test_steps_are_timed_apart_from_the_recorded_ones(measure):
    """A cell of three timed steps and one for warm-up keeps three times, and the losses of all twelve steps."""
    readings = measure("gpt2_tiny-ddp-cpu_x2", steps=3).readings

    assert len(readings["step_time_seconds"].samples) == 3
    assert len(readings["loss"].samples) == 3 + 1 + 3 + 3 + 1 + 1  # recorded, warm-up, timed, unfenced, called, counted


@pytest.mark.slow
def test_fp16_steps_that_overflow_are_no_leak(measure):
    """The recorded steps are those that were not skipped, so that the optimizer's state is in the peak."""
    plain = measure("t5_tiny-single+fp16-cpu_x1")
    overflowing = measure("t5_tiny-single+fp16-cpu_x1", "overflows")

    assert overflowing.outcome == "fits"
    assert None in overflowing.readings["gradient_norm"].samples
    assert overflowing.readings["peak_memory_bytes"] == plain.readings["peak_memory_bytes"]


def test_a_cell_whose_every_step_overflows_ends(measure):
    """After more steps than the loss scale has bits."""
    failure = measure("t5_tiny-single+fp16-cpu_x1", "always_overflows").failure

    assert failure.message == "Rank 0: fp16 overflowed in 30 steps, so there are too few to record."
