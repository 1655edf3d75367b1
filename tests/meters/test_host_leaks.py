"""What a cell's model keeps outside of tensors in each step is red without a baseline."""

from dataclasses import replace

import msgspec
import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.compare.judge import judge
from perfsuite.meters.host_leaks import FEWEST, LEAST, left_by_each
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.verdict import RED, Status
from perfsuite.run.runner import Runner
from perfsuite.show.text.verdict_words import headline

CELL = "gpt2_tiny-ddp-cpu_x2"


@pytest.fixture(scope="module")
def longer(runner, catalog):
    """Makes as many timed steps as matter."""
    longer = Runner(catalog, replace(runner.settings, steps=FEWEST + 1))
    yield longer
    longer.close()


@pytest.fixture(scope="module")
def older(longer, catalog):
    """A baseline that was recorded when nobody counted these bytes."""
    measured = longer.measure(parse_cell(CELL, catalog))
    readings = {name: one for name, one in measured.readings.items() if name != "host_left_bytes"}
    measured = msgspec.structs.replace(measured, readings=readings)
    return Baseline(format=FORMAT, cell=CELL, date=timestamp(), commit="", measurement=measured)


@pytest.mark.parametrize("fault", ["hoards_bytes", None])
def test_bytes_that_each_step_keep_are_red(fault, longer, older, catalog):
    """On one rank of two. A good training keeps fewer than matter."""
    faults = (f"faults:{fault}",) if fault else ()
    measured = longer.measure(replace(parse_cell(CELL, catalog), faults=faults))
    metrics = catalog.metrics("training")
    first = judge(measured, None, metrics, strategy="ddp")
    verdict = judge(measured, older, metrics, strategy="ddp")

    assert measured.outcome == "fits"
    assert (first.status == Status.REGRESSED) == bool(fault)
    assert [line.metric for line in verdict.lines if line.status in RED] == (["host_left_bytes"] if fault else [])
    if fault:
        assert 100 * 1024 <= measured.readings["host_left_bytes"].value < 110 * 1024
        assert "of host memory in every step" in headline(verdict)


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ([LEAST] * FEWEST, LEAST),
        ([LEAST, 4 * LEAST, 3 * LEAST, LEAST + 1, LEAST], LEAST),
        ([LEAST - 1, *[LEAST] * FEWEST], 0),  # not each
        ([0, 0, 9 * LEAST, 0, 0, 9 * LEAST], 0),  # a log that grows by doubling
        ([9 * LEAST] * (FEWEST - 1), 0),  # too few
        ([9 * LEAST, 9 * LEAST, -9 * LEAST] * 3, 0),  # a buffer that is emptied
        ([], 0),
    ],
)
def test_only_what_each_step_adds_is_a_leak(added, left):
    """By the bytes before each step."""
    counts = [1000]
    for more in added:
        counts.append(counts[-1] + more)

    assert left_by_each(counts) == left
