"""Ranks become one measurement: every metric folds in its own way, and nothing broken gets through."""

import math
from typing import Any

import msgspec
import pytest
from gate_samples import CELL, GIB, KILLED, MACHINE, METRICS, OOM, PARTS, UNSUPPORTED, rank_sample
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.folds import GatherError
from perfsuite.compare.gather import LaunchFacts, failed, gather, ranks_of
from perfsuite.compare.rules import rule_of
from perfsuite.errors import PerfsuiteError
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import RankSample, Reading, is_number
from perfsuite.system.units import NUMBER


def fold(*samples: RankSample, metrics: tuple[Metric, ...] = METRICS) -> Measurement:
    return gather(LaunchFacts(cell=CELL, machine=MACHINE, wall_seconds=3.0), list(samples), metrics)


def fold_second(metrics: tuple[Metric, ...] = METRICS, **readings: Reading | None) -> Measurement:
    """Fold two sound ranks of which the second has other readings."""
    return fold(rank_sample(0), rank_sample(1, **readings), metrics=metrics)


def one_metric(hold: str, fold: Any = "max", **fields: Any) -> tuple[Metric, ...]:
    return (Metric(name="it", title="it", unit=NUMBER, hold=hold, fold=fold, **fields),)


def fold_one(metrics: tuple[Metric, ...], *readings: Reading) -> Reading:
    samples = [rank_sample(rank) for rank in range(2)]
    samples = [
        msgspec.structs.replace(sample, readings={"it": reading})
        for sample, reading in zip(samples, readings, strict=True)
    ]
    return fold(*samples, metrics=metrics).readings["it"]


def test_max_keeps_the_fullest_rank_and_its_parts():
    """The fullest rank is the one that dies: its peak and its anatomy are the cell's, both ranks' values are kept."""
    fuller = Reading(value=21 * GIB, parts={"parameters": 12 * GIB, "activations": 9 * GIB})
    peak = fold_second(peak_memory_bytes=fuller).readings["peak_memory_bytes"]

    assert peak == Reading(value=21 * GIB, parts=fuller.parts, ranks=[20 * GIB, 21 * GIB])


def test_sum_adds_values_and_parts():
    """A summed metric adds the ranks' values and their parts by name."""
    left = Reading(value=5, parts={"a": 2, "b": 3})
    right = Reading(value=5, parts={"b": 1, "c": 4})

    assert fold_one(one_metric("exact", "sum"), left, right) == Reading(
        value=10, parts={"a": 2, "b": 4, "c": 4}, ranks=[5, 5]
    )


def test_mean_of_equal_ranks_is_exact():
    """Ranks that agree have exactly their own number as mean."""
    folded = fold_one(one_metric("shown", "mean"), Reading(value=0.1), Reading(value=0.1))

    assert folded.value == 0.1


def test_step_time_is_the_median_of_the_slowest_rank_per_step():
    """A step lasts as long as its slowest rank; the median is taken after that."""
    step_time = fold_second(step_time_seconds=Reading(value=0.4, samples=[0.6, 0.2, 0.4])).readings["step_time_seconds"]

    assert step_time == Reading(value=0.5, samples=[0.6, 0.5, 0.4], ranks=[0.4, 0.4])


def test_loss_is_the_mean_of_the_last_step():
    """Losses average step by step, and the value is the last step's."""
    loss = fold_second(loss=Reading(value=4.0, samples=[6.0, 5.5, 4.0])).readings["loss"]

    assert loss == Reading(value=4.5, samples=[6.0, 5.5, 4.5], ranks=[5.0, 4.0])


def test_a_step_that_one_rank_skipped_is_none_for_all():
    """An overflow on one rank leaves the step without a number, and the value is the last step with one."""
    loss = fold_second(loss=Reading(value=5.5, samples=[6.0, 5.5, None])).readings["loss"]

    assert (loss.samples, loss.value) == ([6.0, 5.5, None], 5.5)


def test_a_derived_metric_sees_folded_readings():
    """Tokens per second divide the sum of all tokens by the folded step time, and have no ranks."""
    assert fold(rank_sample(0), rank_sample(1)).readings["tokens_per_second"] == Reading(value=192 / 0.4)


def test_an_optional_metric_may_be_missing_everywhere():
    """A number that the device cannot measure is simply absent."""
    assert "reserved_memory_bytes" not in fold(rank_sample(0), rank_sample(1)).readings


def test_ranks_fold_in_their_order():
    """The order in which results arrive changes nothing."""
    ranks = [rank_sample(0), rank_sample(1, tokens=Reading(value=90))]

    assert fold(*ranks) == fold(*reversed(ranks))


def test_the_slowest_rank_makes_a_phase():
    """Phases overlap, so each lasts as long as its slowest rank."""
    assert fold(rank_sample(0), rank_sample(1)).phases_seconds == {"build": 2.0, "steps": 2.0}


def test_every_metric_of_the_catalog_folds():
    """The real metrics, on two ranks that measured all of them, give a reading each."""
    metrics = tuple(Catalog().all("metric").values())
    readings = {
        metric.name: Reading(value=2, samples=[2.0], parts={"a": 2} if metric.hold == "exact" else {})
        for metric in metrics
        if metric.derive is None
    }
    ranks = [msgspec.structs.replace(rank_sample(rank), readings=readings) for rank in range(2)]

    assert list(fold(*ranks, metrics=metrics).readings) == [metric.name for metric in metrics]


@pytest.mark.parametrize(
    ("readings", "text"),
    [
        pytest.param({"tokens": None}, "tokens is missing on rank 1.", id="missing"),
        pytest.param(
            {"reserved_memory_bytes": Reading(value=1)}, "reserved_memory_bytes is missing on rank 0.", id="some"
        ),
        pytest.param({"stray": Reading(value=1)}, "Rank 1 measured 'stray', which no Metric defines.", id="undefined"),
        pytest.param({"tokens_per_second": Reading(value=1)}, "which is derived from other metrics.", id="derived"),
        pytest.param({"tokens": Reading(value=math.nan)}, "tokens on rank 1 is nan", id="nan"),
        pytest.param({"tokens": Reading(value=math.inf)}, "tokens on rank 1 is inf", id="inf"),
        pytest.param({"tokens": Reading(value=10**400)}, "which is not a finite number.", id="huge"),
        pytest.param({"tokens": Reading(value=True)}, "tokens on rank 1 is True", id="bool"),
        pytest.param(
            {"loss": Reading(value=5.0, samples=[6.0, math.nan, 5.0])}, "loss on rank 1 is nan", id="nan-in-a-sample"
        ),
        pytest.param(
            {"loss": Reading(value=5.0, samples=[6.0, 5.0])},
            "loss has 2 samples on rank 1, but 3 on rank 0.",
            id="length",
        ),
        pytest.param(
            {"loss": Reading(value=5.0, samples=[None, None, None])}, "loss has no sample on rank 1.", id="all-overflow"
        ),
        pytest.param(
            {"peak_memory_bytes": Reading(value=20 * GIB + 1, parts=PARTS)},
            "peak_memory_bytes on rank 1 is 21,474,836,481, but its parts sum to 21,474,836,480.",
            id="one-byte-unaccounted",
        ),
        pytest.param(
            {"peak_memory_bytes": Reading(value=1, parts={"a": 2, "b": -1})},
            "has -1 of b, a negative number.",
            id="sign",
        ),
    ],
)
def test_a_broken_rank_is_named(readings, text):
    """Whatever is wrong on one rank is an error that names the metric and the rank."""
    with pytest.raises(GatherError) as raised:
        fold_second(**readings)

    assert text in str(raised.value)


def test_no_timed_step_is_an_error():
    """A time without samples is no time."""
    nothing = Reading(value=0.4)
    with pytest.raises(GatherError) as raised:
        fold(rank_sample(0, step_time_seconds=nothing), rank_sample(1, step_time_seconds=nothing))

    assert str(raised.value) == "step_time_seconds has no sample on rank 0."


def test_ranks_that_never_share_a_step_are_an_error():
    """If every step overflowed on one rank or the other, no step has a loss."""
    with pytest.raises(GatherError) as raised:
        fold_one(one_metric("close"), Reading(value=1.0, samples=[1.0, None]), Reading(value=1.0, samples=[None, 1.0]))

    assert str(raised.value) == "it has no step with a sample on every rank from 0 to 1."


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "Rank 0 of 2 left 0 results instead of one."),
        ([0], "Rank 1 of 2 left 0 results instead of one."),
        ([0, 0, 1], "Rank 0 of 2 left 2 results instead of one."),
        ([0, 1, 2], "There is a result of rank 2, but the cell has 2 ranks."),
    ],
)
def test_exactly_the_ranks_of_the_id_are_folded(ranks, text):
    """The cell's id says how many ranks there must be."""
    with pytest.raises(GatherError) as raised:
        fold(*map(rank_sample, ranks))

    assert str(raised.value) == text


@pytest.mark.parametrize("versions", [{"torch": "2.12.0"}, {}, {"triton": "3"}])
def test_ranks_of_different_versions_are_an_error(versions):
    """Ranks that ran different libraries are not one measurement."""
    other = msgspec.structs.replace(rank_sample(1), versions=versions)

    with pytest.raises(GatherError, match=r"^Rank 1 runs \w+ .+, but rank 0 runs .+\.$"):
        fold(rank_sample(0), other)


def _raise(readings, world_size):
    return readings["nothing"].value


@pytest.mark.parametrize("derive", [_raise, lambda readings, n: n / 0, lambda readings, n: None, lambda *_: math.nan])
def test_a_formula_that_fails_is_named(derive):
    """A derived metric without a finite number is an error, whoever wrote the formula."""
    with pytest.raises(GatherError, match=r"^mine[ ,].*2 ranks"):
        fold_second((*METRICS, Metric(name="mine", title="mine", unit=NUMBER, derive=derive)))


def test_an_optional_formula_may_have_no_answer():
    """None from an optional derived metric leaves it out."""
    mine = Metric(name="mine", title="mine", unit=NUMBER, derive=lambda *_: None, optional=True)

    assert "mine" not in fold_second((*METRICS, mine)).readings


def test_parts_have_no_mean():
    """Averaged parts would not be whole bytes that add up."""
    halves = Reading(value=1, parts={"a": 1})
    with pytest.raises(GatherError, match="it on rank 0 has parts, which the fold 'mean' cannot fold"):
        fold_one(one_metric("exact", "mean"), halves, halves)


def test_parts_must_add_up_after_the_fold_too():
    """A value that summarizes samples is no longer what its parts were of."""
    shared = Reading(value=3, parts={"a": 3}, samples=[1.0, 1.0, 3.0])
    with pytest.raises(GatherError, match=r"it is 1\.0 over all ranks, but its parts sum to 3"):
        fold_one(one_metric("time"), shared, shared)


def test_an_unknown_fold_is_an_error():
    """A metric of one's own with a misspelt fold gets an error with the known ones."""
    with pytest.raises(GatherError, match=r"has no fold 'maximum'\. Known: max, min, sum, mean, parted"):
        fold_one(one_metric("exact", "maximum"), Reading(value=1), Reading(value=1))


def test_a_sum_beyond_all_floats_is_an_error():
    """Finite ranks must not fold into infinity."""
    with pytest.raises(GatherError, match="The mean of it over 2 ranks is not a finite number"):
        fold_one(one_metric("shown", "mean"), Reading(value=1.7e308), Reading(value=1.7e308))


@pytest.mark.parametrize(("failure", "outcome"), [(OOM, "oom"), (UNSUPPORTED, "unsupported"), (KILLED, "failed")])
def test_a_failure_is_a_measurement_with_its_outcome(failure, outcome):
    """Only out of memory and unsupported are outcomes of their own; whatever else went wrong is "failed"."""
    record = failed(LaunchFacts(cell=CELL, machine=MACHINE, wall_seconds=1.0, capacity_bytes=GIB), failure)

    assert (record.outcome, record.failure, record.readings) == (outcome, failure, {})


@pytest.mark.parametrize(
    ("cell_id", "ranks"),
    [(CELL, 2), ("gpt3_175b-zero3+bf16-v100_32g_x4n16", 64), ("t5_tiny-single-cpu_x1-b8-s1024", 1)],
)
def test_the_id_says_how_many_ranks(cell_id, ranks):
    """Ranks per node times nodes, whatever the workload's suffixes."""
    assert ranks_of(cell_id) == ranks


@pytest.mark.parametrize("text", ["", "t5_tiny", "t5_tiny-zero3-cpu", "t5_tiny-zero3-cpu_x0", "t5_tiny--cpu_x2"])
def test_what_is_no_id_is_an_error(text):
    """A text that names no rank count cannot be folded."""
    with pytest.raises(PerfsuiteError, match="is not a cell's id"):
        ranks_of(text)


@given(st.floats() | st.integers().map(lambda number: number**9) | st.booleans() | st.text() | st.none())
def test_a_number_is_finite_and_no_bool(value):
    """is_number never raises, and says yes only to what a JSON file and a float can both hold."""
    try:
        finite = type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        finite = False

    assert is_number(value) == finite


@given(st.lists(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=2), min_size=1, max_size=8))
def test_the_folded_time_is_never_less_than_a_rank_s_median(steps):
    """Waiting for the slowest rank can only make a step longer."""
    columns = [list(column) for column in zip(*steps, strict=True)]
    folded = fold_one(one_metric("time"), *(Reading(value=1.0, samples=column) for column in columns))

    assert all(folded.value >= sorted(column)[(len(column) - 1) // 2] for column in columns)


@pytest.mark.parametrize("metric", [one for one in Catalog().metrics("script") if one.optional and not one.derive])
def test_what_one_rank_of_a_script_does_alone_is_missing_nowhere(metric):
    """It is folded over the ranks that have it. The other rank's is 0."""
    samples = [msgspec.structs.replace(rank_sample(rank), readings={}) for rank in range(2)]
    alone = Reading(value=3, samples=[3.0] if rule_of(metric).summary else [])
    samples[0] = msgspec.structs.replace(samples[0], readings={metric.name: alone})
    found = gather(LaunchFacts(cell="train-script-cpu_x2", machine=MACHINE, wall_seconds=3.0), samples, [metric])

    assert found.readings[metric.name].value == 3
    assert found.readings[metric.name].ranks == [3, 0]


def test_a_formula_without_a_value_says_why():
    """An MFU above 100 % is left out, with its reason."""
    derived = Metric("it", "it", NUMBER, optional=True, derive=lambda readings, ranks: None, underived="too high")
    found = fold(rank_sample(0), rank_sample(1), metrics=(*METRICS, derived))

    assert found.uncounted["it"] == "too high"
