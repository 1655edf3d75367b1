"""A leak goes on to grow in later steps, and a cache ends."""

import pytest

from perfsuite.meters._growth import goes_on, rising


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
