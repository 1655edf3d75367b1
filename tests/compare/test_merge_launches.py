"""Several launches of a cell as one measurement."""

import msgspec
import pytest
from gate_samples import measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.merge_launches import merge
from perfsuite.records.sample import Reading

METRICS = Catalog().metrics("training")


def test_a_launch_of_times_alone_may_lack_what_is_only_shown():
    """A trial makes a checkpoint in its first pair, and its later pairs have none."""
    first = measurement(save_seconds=Reading(value=0.1), checkpoint_bytes=Reading(value=9))
    merged = merge([first, msgspec.structs.replace(measurement(), times_only=True)], METRICS)

    assert merged.outcome == "fits", merged.failure
    assert merged.readings["save_seconds"].value == 0.1
    assert merged.readings["checkpoint_bytes"].value == 9


@pytest.mark.parametrize("times_only", [False, True])
def test_a_time_that_is_compared_must_be_there(times_only):
    """In every launch."""
    later = msgspec.structs.replace(measurement(step_time_seconds=None), times_only=times_only)

    assert "step time was measured in launch 2" in merge([measurement(), later], METRICS).failure.message


@pytest.mark.parametrize("values", [(4, 1, 3), (4, 3, 1), (4, 5, 1)])
def test_the_spread_is_that_of_all_launches(values):
    """The other value is the one farthest from the first, in whatever order they came."""
    cell = "train-script-cpu_x1"
    launches = [msgspec.structs.replace(measurement(collectives=Reading(value=value)), cell=cell) for value in values]

    assert merge(launches, METRICS).unrepeated == {"collectives": 1}
