"""Processor time: what the cores compute for a step, and not what it waits for."""

CELL = "gpt2_tiny-single-cpu_x1"


def test_a_cpu_cell_has_processor_time(measure):
    """Of every timed step, and above zero."""
    found = measure(CELL).readings

    assert len(found["processor_time_seconds"].samples) == len(found["step_time_seconds"].samples)
    assert min(found["processor_time_seconds"].samples) > 0


def test_a_step_that_sleeps_takes_no_processor_time(measure):
    """A fifth of a second of sleep is in the step time alone."""
    slept = measure(CELL, "naps").readings

    assert slept["step_time_seconds"].value > 0.2
    assert slept["processor_time_seconds"].value < 0.5 * slept["step_time_seconds"].value
