"""The pace of a real cell: what the core does between its steps."""

from conftest import Measure
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.runner import Runner, Settings

DDP = "gpt2_tiny-ddp-cpu_x2"
EPOCHS = "gpt2_tiny-single+epochs3-cpu_x1"


def test_each_timed_step_has_one(measure: Measure) -> None:
    """As many as steps, each a positive time."""
    found = measure(DDP).readings
    pace = found["pace_seconds"]

    assert len(pace.samples) == len(found["step_time_seconds"].samples)
    assert all(one and 0 < one < 1 for one in pace.samples)


def test_evaluations_lie_between_the_steps(measure: Measure) -> None:
    """Over epochs too each step has the rounds beside it."""
    found = measure(EPOCHS).readings

    assert len(found["pace_seconds"].samples) == len(found["step_time_seconds"].samples)


def test_none_under_a_capacity() -> None:
    """Times are not held there, so the rounds are saved."""
    catalog = Catalog()
    runner = Runner(catalog, Settings(steps=2, warmup=1, capacity_bytes=2**30))
    found = runner.measure(parse_cell("gpt2_tiny-single-cpu_x1", catalog))
    runner.close()

    assert found.outcome == "fits" and "pace_seconds" not in found.readings
