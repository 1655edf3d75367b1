"""A long run: what 1 KiB per step leaves is found and its line is named, and a good training leaves nothing."""

import dataclasses
import importlib.util
import itertools
from dataclasses import replace
from multiprocessing import shared_memory

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import PerfsuiteError
from perfsuite.meters.long_run import LongRun, _least, _slope, shared_bytes
from perfsuite.run.runner import Runner
from perfsuite.settings.options import FEWEST_LONG, LONG

CELL = "gpt2_tiny-single-cpu_x1"
STEPS = 500
needs_memray = pytest.mark.skipif(importlib.util.find_spec("memray") is None, reason="memray names the lines")
GROWTH = ("kept_tensor_bytes", "kept_host_bytes", "kept_files")
HOARDS = {  # fault → the metric that must find it, and what it finds per step
    "hoards_a_tensor": ("kept_tensor_bytes", 1024, 1024),
    "hoards_python": ("kept_blocks", 20, 22),
    "hoards_malloc": ("kept_host_bytes", 1024, 1100),
    "hoards_files": ("kept_files", 1, 1),
}


@pytest.fixture(scope="module")
def long_run(runner, catalog):
    """Measures a cell with a long run after its few steps."""
    runners = {}

    def measured(steps, cell, *faults):
        if steps not in runners:
            runners[steps] = Runner(catalog, dataclasses.replace(runner.settings, long=steps))
        found = runners[steps].measure(
            replace(parse_cell(cell, catalog), faults=tuple(f"faults:{one}" for one in faults))
        )
        assert found.outcome == "fits", found.failure
        return found.readings

    yield measured
    for one in runners.values():
        one.close()


@needs_memray
def test_every_leak_is_found_and_named(long_run):
    """All at once, in few steps: each metric names the file of the fault."""
    readings = long_run(FEWEST_LONG, CELL, *HOARDS)

    for metric, least, _ in HOARDS.values():
        assert readings[metric].value >= least
        assert "faults.py" in " ".join(readings[metric].suspects), readings[metric]


@needs_memray
@pytest.mark.slow
@pytest.mark.parametrize("fault", HOARDS)
def test_a_leak_is_found_by_itself(long_run, fault):
    """By its own metric. A tensor and a dictionary have a few hundred bytes of malloc's memory as well."""
    metric, least, most = HOARDS[fault]
    readings = long_run(STEPS, CELL, fault)
    others = {name for name in GROWTH if readings[name].value} - {metric}

    assert least <= readings[metric].value <= most
    assert others <= ({"kept_host_bytes"} if fault in ("hoards_a_tensor", "hoards_python") else set())
    assert any("faults.py" in place for place in readings[metric].suspects)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [CELL, "gpt2_tiny-ddp-cpu_x2", "gpt2_tiny-zero2-cpu_x2"])
def test_a_good_training_keeps_nothing(long_run, cell):
    """Neither the libraries nor perfsuite."""
    readings = long_run(STEPS, cell)

    assert {name: (readings[name].value, readings[name].suspects) for name in GROWTH} == dict.fromkeys(GROWTH, (0, {}))


def test_without_a_long_run_nothing_of_it_is_read(measure):
    """An old baseline and a short run have none of its metrics."""
    assert not {"kept_tensor_bytes", "step_time_growth_seconds"} & measure(CELL).readings.keys()


def test_the_block_that_grew_least_counts():
    """A cache that is filled once, in whatever block, is no leak; a leak is in every block."""
    assert _least([0, 900, 900, 5000, 5000], 50) == 0
    assert _least([0, 900, 900 + 50 * 7, 5000, 5000 + 50 * 9], 50) == 9


@pytest.mark.parametrize(("blocks", "left"), [((1, 2, 1), 0), ((3, 3, 3), 0), ((4, 5, 4), 4)])
def test_a_log_of_numbers_is_no_leak(blocks, left):
    """A script that logs its loss keeps a number or two per step, not the same in every launch."""
    meter = object.__new__(LongRun)
    meter.block, meter.left = 10, None
    zero = {"kept_tensor_bytes": 0, "kept_host_bytes": 0, "kept_files": 0}
    totals = [0, *itertools.accumulate((900, *(10 * number for number in blocks)))]
    meter.counts = [zero | {"kept_blocks": total} for total in totals]

    assert meter.grown() == ({"kept_blocks": left} if left else {})


def test_slope_ignores_a_slow_period():
    """The machine is slow for one block."""
    assert _slope([1.0, 1.0, 9.0, 1.0, 1.0]) == 0
    assert _slope([1.0, 2.0, 3.0, 4.0]) == 1


def test_too_short_a_long_run_is_refused():
    """Its blocks would have too few steps to tell a leak from a cache."""
    with pytest.raises(PerfsuiteError, match="at least 100 steps, not 99"):
        LONG.value_of("99")


def test_shared_memory_is_counted_as_long_as_it_is_mapped():
    """By its pages."""
    before = shared_bytes()
    block = shared_memory.SharedMemory(create=True, size=2**20)

    assert shared_bytes() - before == 2**20

    block.close()
    block.unlink()

    assert shared_bytes() == before
