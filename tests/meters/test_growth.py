"""A leak goes on to grow in later steps, and a cache ends."""

import itertools

import pytest

from perfsuite.meters._growth import goes_on, rising
from perfsuite.meters.own_host import grown_later, grown_measured, grown_one_by_one


@pytest.mark.parametrize(
    ("counts", "leaks"),
    [
        ([0, 100, 200, 300], True),
        ([0, 50, 120, 170], True),  # half as fast
        ([0, 100, 150, 150], False),
        ([0, 100, 200, 203], False),  # what other things add
        ([0, 100, 200, 150], False),
        ([0, 100, 100], True),  # too few to say so
        ([], True),
    ],
)
def test_what_grows_in_each_block_is_a_leak(counts, leaks):
    """Ten steps are in a block, and each has left ten before."""
    assert goes_on(counts, 10) == leaks


@pytest.mark.parametrize(
    ("peaks", "grows"),
    [
        ([1000 + 512 * step for step in range(40)], 512),
        ([1000 + 512 * step - 4000 * (step % 20 == 0) for step in range(40)], 512),  # other things end now and then
        ([1000 + 512 * max(0, step - 30) for step in range(80)], 512),  # it begins late
        ([1000 + 512 * max(0, step - 70) for step in range(80)], 0),  # too late to say so
        ([1000 + 512 * (step % 7) for step in range(40)], 0),  # batches that differ
        ([1000] * 40, 0),
        ([1000 + 512 * step for step in range(10)], 0),  # too few
    ],
)
def test_what_each_step_makes_larger_grows(peaks, grows):
    """Nothing is kept: each step replaces a tensor by a larger one."""
    assert rising(peaks) == grows


@pytest.mark.parametrize(
    ("mebibytes", "grown"),
    [
        ([0, 10, 11, 12, 13], 1),  # ten timed steps, and three single ones
        ([0, 8, 8, 8, 8], 0),  # made once
        ([0, 0, 7, 7, 7], 0),
        ([0, -30, -29, -28, -27], 0),  # what libraries had was freed: later steps tell
        ([0], 0),
    ],
)
def test_what_changes_one_count_is_no_growth_of_each_measured_step(mebibytes, grown):
    """A leak changes all."""
    steps = [4, 14, 15, 16, 17]
    counts = [("timed", step, number * 2**20) for step, number in zip(steps, mebibytes, strict=False)]

    assert grown_measured([("warmup", 3, -(2**30)), *counts]) == grown * 2**20


@pytest.mark.parametrize(
    ("kibibytes", "grown"),
    [
        ([0, 640, 1280, 1920], 64),
        ([0, 320, 960, 1600, 1600], 32),  # it begins late; a later block does not count
        ([0, 900, 900, 1800], 0),
        ([0, 90, 180, 270], 0),  # too little
    ],
)
def test_what_grows_in_three_later_blocks_is_growth_of_each_step(kibibytes, grown):
    """Of ten steps each."""
    assert grown_later([number * 1024 for number in kibibytes]) == grown * 1024


@pytest.mark.parametrize(
    ("kibibytes", "garbage", "grown"),
    [
        pytest.param([64] * 30, 0, 64, id="a leak"),
        pytest.param([64] * 9 + [-4141] + [64] * 15 + [-2529, 2896, 64, 64], 0, 64, id="beside an epoch's end"),
        pytest.param([64, 64, 0, 64] * 7, 0, 64, id="in three of four steps"),
        pytest.param([64, 0] * 15, 0, 0, id="in every second step, whose blocks tell"),
        pytest.param(([64] * 9 + [-576]) * 3, 0, 0, id="a buffer that is emptied"),
        pytest.param([64] * 15 + [0] * 15, 0, 0, id="a cache that ends"),
        pytest.param([64] * 30, 1000, 0, id="garbage"),
        pytest.param([64] * 11, 0, 0, id="few steps"),
        pytest.param([8] * 30, 0, 0, id="too little"),
    ],
)
def test_what_grows_in_nearly_each_later_step(kibibytes, garbage, grown):
    """What one step frees hides no leak."""
    counts = list(itertools.accumulate((number * 1024 for number in kibibytes), initial=2**20))

    assert grown_one_by_one(counts, garbage * 1024) == grown * 1024
