"""The hardware that ``perfsuite run`` begins with, if none is named."""

import pytest

from perfsuite.launch.hardware_here import largest_here


@pytest.mark.parametrize(
    ("here", "first"),
    [
        ([], "cpu_x1"),
        (["h100_x1"], "h100_x1"),
        (["h100_x1", "h100_x8"], "h100_x8"),
        (["t4_x1", "h100_x1", "h100_x8"], "t4_x1"),
    ],
)
def test_it_has_all_gpus_of_a_kind(here, first):
    """A rank of torchrun sets its own GPU before it makes a step, so it must see it."""
    assert str(largest_here(here)) == first
