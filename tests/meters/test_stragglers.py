"""Stragglers: the rank that the others wait for is named, with its share of the step."""

import pytest

from perfsuite.meters.waiting import straggler


def test_the_rank_that_sleeps_least_is_the_slowest():
    """The others sleep 0.3 s longer, of steps of 1 s."""
    found = straggler([[0.4, 0.5], [0.1, 0.2], [0.4, 0.5]], [1.0, 1.0])

    assert found.value == pytest.approx(0.3)
    assert found.suspects == {"slowest: rank 1": 2}


def test_ranks_that_take_turns_are_counted_each():
    """Chance: each is the slowest of some steps."""
    found = straggler([[0.0, 0.2, 0.0], [0.2, 0.0, 0.2]], [1.0, 1.0, 2.0])

    assert found.value == pytest.approx(0.2)
    assert found.suspects == {"slowest: rank 0": 2, "slowest: rank 1": 1}


def test_a_slow_rank_is_named_in_a_real_cell(measure):
    """Rank 1 computes 50 ms more in each step: rank 0 waits for it in most of them."""
    found = measure("gpt2_tiny-ddp-cpu_x2", "lags").readings["straggler_share"]

    assert found.value > 0.05
    assert next(iter(found.suspects)) == "slowest: rank 1"
