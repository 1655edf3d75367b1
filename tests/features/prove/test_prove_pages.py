"""The pages of `perfsuite selftest` and `perfsuite replay`."""

from ab_samples import page_of
from replays import missed, replayed


def test_a_selftest_shows_what_passed_first():
    """Faults in time are shares with intervals."""
    document = missed()
    page = page_of(document)

    assert document.verdict == "1 of 2 exact faults are caught for the right reason."
    assert [one.heading for one in document.sections] == ["Not as expected", "Faults in time", "Every fault"]
    assert "2 of 3" in page and document.tone == "red"


def test_a_replay_shows_each_regression():
    """With its source, its numbers and its commands; what is caught is folded."""
    document = replayed()
    page = page_of(document)

    assert document.verdict == "1 of 1 that ran are caught." and document.sections[1].folded
    assert 'gradient norm <span class="whole">3.58 → 1.97</span>' in page and "perfsuite replay --fresh one" in page
