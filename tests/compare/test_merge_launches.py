"""Several launches of a cell as one measurement."""

from collections.abc import Mapping

import msgspec
import pytest
from gate_samples import METRICS as METRICS_OF_GATE
from gate_samples import measurement

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.merge_launches import merge
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.system.units import COUNT, NUMBER

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


def utilization(times: tuple[float, float]) -> tuple[Measurement, Metric]:
    """Two launches with those step times, merged, and the share of a peak that only the slower ones are below."""
    flop = Metric("model_flop", "model FLOP/step", COUNT, hold="exact")

    def formula(readings: Mapping[str, Reading], _: int) -> float | None:
        share = 0.3 / readings["step_time_seconds"].value
        return share if share <= 1 else None

    mfu = Metric("mfu", "MFU", NUMBER, optional=True, derive=formula, underived="above 100 %")
    launches = []
    for seconds in times:
        made = measurement(step_time_seconds=Reading(value=seconds, samples=[seconds]), model_flop=Reading(value=9))
        share = formula(made.readings, 1)
        readings = made.readings | ({"mfu": Reading(value=share)} if share else {})
        uncounted = {} if share else {"mfu": mfu.underived}
        launches.append(msgspec.structs.replace(made, readings=readings, uncounted=uncounted))
    return merge(launches, [*METRICS_OF_GATE, flop, mfu]), mfu


@pytest.mark.parametrize("times", [(0.2, 0.5), (0.5, 0.2)])
def test_a_formula_may_leave_its_metric_out_of_one_launch(times):
    """An MFU above 100 % in a launch that the machine's measured peak did not suit; the pooled times decide."""
    merged, _ = utilization(times)

    assert merged.failure is None
    assert merged.readings["mfu"].value == pytest.approx(0.3 / 0.35)
    assert merged.uncounted == {}


def test_pooled_times_may_leave_a_derived_metric_out():
    """With its reason, although the first launch had it."""
    merged, mfu = utilization((0.4, 0.1))

    assert "mfu" not in merged.readings
    assert merged.uncounted == {"mfu": mfu.underived}
