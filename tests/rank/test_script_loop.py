"""The period of a script's loop, and the hooks that see it."""

import pytest

from perfsuite.rank.script.loop import MOST, period_of
from perfsuite.rank.script.watched import Watched


@pytest.mark.parametrize(
    ("iterations", "period"),
    [
        (["DFBO0"] * 2, None),
        (["DFBO0"] * 3, 1),
        (["FDFBO0", "DFBO0", "DFBO0"], 1),  # the first has the start in it
        (["a", "b", "a"], None),
        (["x", "a", "b", "a", "b"], 2),
        (["a", "b", "a", "b", "a"], 2),
        ([str(number) for number in range(MOST)], None),
    ],
)
def test_the_period_is_the_shortest_repetition(iterations, period):
    """Behind the first iteration, and not before it has repeated."""
    assert period_of(iterations) == period


def test_perfsuites_own_calls_are_not_the_loops():
    """A backward of its own is no event, and its loss is not kept."""
    watched = Watched(lambda phase: None, lambda skipped: None)

    with watched.away():
        assert not watched.is_here
    assert watched.is_here
