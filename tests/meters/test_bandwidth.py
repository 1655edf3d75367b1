"""Communication cells: messages of every size arrive as they should, and what they cost adds up."""

import numpy
import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused
from perfsuite.meters.bandwidth import fit
from perfsuite.rank.message_sizes import SIZES, SWEEP_BYTES, label

FACTORS = {"all_reduce": {2: 1.0}, "all_gather": {2: 0.5, 4: 0.75}, "reduce_scatter": {2: 0.5}, "send_recv": {2: 1.0}}
QUICK = {("all_reduce", 2)}  # a sweep takes seconds
CELLS = slow_unless(QUICK.__contains__, [(engine, ranks) for engine, factors in FACTORS.items() for ranks in factors])


@pytest.mark.parametrize(("engine", "ranks"), CELLS)
def test_bytes_are_those_of_the_sweep(measure, engine, ranks):
    """The dispatcher sees exactly the messages that the sweep is made of, and they are the engine's collective."""
    readings = measure(f"wire-{engine}-cpu_x{ranks}").readings
    counted = readings["communication_bytes"].parts

    assert counted == readings["communication_theory_bytes"].parts
    assert set(counted.values()) == {SWEEP_BYTES}


@pytest.mark.parametrize(("engine", "ranks"), CELLS)
def test_bandwidths_follow_from_the_times(measure, engine, ranks):
    """Algorithm bandwidth is bytes per second of the median; bus bandwidth is as in NCCL's tests."""
    readings = measure(f"wire-{engine}-cpu_x{ranks}", steps=3).readings
    for size in SIZES:
        name = label(size).lower()
        seconds = readings[f"message_{name}_seconds"]
        algorithm = readings[f"algorithm_bandwidth_{name}"].value

        assert len(seconds.samples) == 3
        assert algorithm == pytest.approx(size / sorted(seconds.samples)[1])
        assert readings[f"bus_bandwidth_{name}"].value == pytest.approx(algorithm * FACTORS[engine][ranks])


def test_large_messages_are_faster_per_byte(measure):
    """64 MiB reach a larger bandwidth than 1 KiB, which is mostly latency."""
    readings = measure("wire-all_reduce-cpu_x2").readings

    assert readings["bus_bandwidth_64mib"].value > 10 * readings["bus_bandwidth_1kib"].value


def test_only_metrics_of_messages(measure, catalog):
    """A cell without a model has no loss, no step and no peak."""
    readings = measure("wire-all_reduce-cpu_x2").readings

    assert set(readings) == {metric.name for metric in catalog.metrics("communication")}
    assert not {"loss", "step_time_seconds", "peak_memory_bytes"} & set(readings)


def test_fit_finds_what_it_was_made_of():
    """Times of 50 µs and 1 ns per byte give these two numbers and no residual."""
    alpha, beta, residual = fit({size: 50e-6 + 1e-9 * size for size in SIZES})

    assert alpha == pytest.approx(50e-6)
    assert beta == pytest.approx(1e-9)
    assert residual < 1e-9


def test_the_fit_is_numpy_s():
    """Least squares with weights 1/t, which numpy squares."""
    random = numpy.random.default_rng(0)
    points = {size: (50e-6 + 1e-9 * size) * random.uniform(0.8, 1.2) for size in SIZES}
    seconds = list(points.values())

    assert fit(points)[1::-1] == pytest.approx(numpy.polyfit(list(points), seconds, 1, w=numpy.divide(1, seconds)))


def test_small_messages_count_in_the_fit():
    """A large message that is 10 % slow hardly moves the latency: weights are relative."""
    points = {size: 50e-6 + 1e-9 * size for size in SIZES}
    alpha, _, residual = fit(points | {SIZES[-1]: points[SIZES[-1]] * 1.1})

    assert alpha == pytest.approx(50e-6, rel=0.02)
    assert 0.01 < residual < 0.1


@pytest.mark.parametrize(
    ("engine", "fault"), [("all_reduce", "no_sum"), ("all_gather", "no_gather"), ("send_recv", "wrong_sender")]
)
def test_wrong_result_is_red(measure, engine, fault):
    """A collective that moves the bytes and leaves wrong numbers ends the cell."""
    measurement = measure(f"wire-{engine}-cpu_x2", fault)

    assert measurement.outcome == "failed"
    assert f"{engine} of 1KiB left numbers with an error" in measurement.failure.message


@pytest.mark.slow
def test_another_collective_is_a_wrong_engine(measure):
    """An all-gather that is made of broadcasts is not an all-gather; the end of the cell proves it again."""
    measurement = measure("wire-all_gather-cpu_x2", "gathers_by_broadcast")

    assert measurement.outcome == "failed"
    assert "Must send 1024 B by all_gather, but sent {'broadcast': 1024}" in measurement.failure.message


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("wire-ddp-cpu_x2", "wire has no weights"),
        ("wire-forward-cpu_x1", "wire has no weights"),
        ("gpt2_tiny-all_reduce-cpu_x2", "write wire-all_reduce-cpu_x2"),
        ("wire-all_reduce-cpu_x1", "at least 2 ranks"),
        ("wire-all_gather-cpu_x3", "which 3 ranks cannot do"),
        ("wire-all_reduce+bf16-cpu_x2", "its messages belong to no model"),
        ("wire-all_reduce+epochs2-cpu_x2", "its messages belong to no model"),
        ("wire-all_reduce-cpu_x2-b4", "messages have sizes of their own"),
    ],
)
def test_what_makes_no_sense_is_refused(catalog, cell, reason):
    """Models do not go with messages, nor do techniques and workloads."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
