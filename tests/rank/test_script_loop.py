"""The period of a script's loop, and the hooks that see it."""

import pytest

from perfsuite.rank.script.loop import FILE, MOST, MOST_PERIOD, Shared, extras, loop_of
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
        ([str(number) for number in range(2 * MOST)], None),
        (["a", "aF", *["a"] * MOST_PERIOD], None),  # it might be a period of nine
        (["a", "aF", *["a"] * (MOST_PERIOD + 1)], 1),
        (["x", "aF", "b", *["a", "b"] * 5], 2),
        (["DFBO0", *["FDFBO0", *["DFBO0"] * 8] * 3], 1),  # evaluated before every ninth
        (["DFBO0", *["DBO0", *["DFBO0"] * 8] * 3], None),  # that one trains otherwise
        (["x", *["aF", "b", *["a", "b"] * 8] * 2], 2),
    ],
)
def test_the_period_is_the_shortest_repetition(iterations, period):
    """Behind the first iteration, and not before it has repeated."""
    loop = loop_of(iterations)

    assert (loop.period if loop else None) == period


def test_extras_train_nothing():
    """What an iteration has beside the plain one, on any rank; another training is none."""
    assert extras("FDFBO0|DFBO0", "DFBO0|DFBO0") == ["forward"]
    assert extras("DFBO0RDF|DFBO0", "DFBO0|DFBO0") == ["generation", "data", "forward"]
    assert extras("DFBO0|DFBO0", "DFBO0|DFBO0") == []
    assert extras("DFBBO0", "DFBO0") is None
    assert extras("DFB", "DFBO0") is None
    assert extras("DFBO0", "DFBO0|DFBO0") is None


def test_perfsuites_own_calls_are_not_the_loops():
    """A backward of its own is no event, and its loss is not kept."""
    watched = Watched(lambda phase: None, lambda skipped: None)

    with watched.away():
        assert not watched.is_here
    assert watched.is_here


def test_all_ranks_see_one_loop(tmp_path):
    """Each iteration has the events of all of them, and any of them may wait for more of it."""
    one, other = (Shared(tmp_path, rank, 2, lambda phase: None) for rank in range(2))
    (tmp_path / FILE.format(rank=1)).write_text("DFBO0 1\nFDFBO0 0\n")

    assert [one.iteration("DFBO0", False) for _ in range(2)] == [("DFBO0|DFBO0", True), ("DFBO0|FDFBO0", False)]
    (tmp_path / FILE.format(rank=1)).unlink()
    assert other.iteration("DFBO0", True) == ("DFBO0|DFBO0", True)


def test_one_rank_waits_for_nobody(tmp_path):
    """It writes no file."""
    assert Shared(tmp_path, 0, 1, lambda phase: None).iteration("DFBO0", False) == ("DFBO0", False)
    assert not list(tmp_path.iterdir())
