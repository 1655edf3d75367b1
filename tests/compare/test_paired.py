"""The interval of a mean difference of pairs, and what it says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.compare.paired import FEWEST_PAIRS, PRIOR_SPREAD, Interval, interval

BADNESS = {"improved": 0, "ok": 1, "open": 1, "regressed": 2}
some_differences = st.lists(st.floats(-0.5, 0.5), min_size=FEWEST_PAIRS, max_size=24)


def test_interval_by_hand() -> None:
    """Three equal differences have the spread known beforehand alone, on 1 + 3 - 1 = 3 degrees of freedom; of these
    Student's table has 4.541 for 1 % on one side.
    """
    found = interval([0.05] * 3, error=0.01)

    assert found is not None and found.freedom == 3
    assert found.high - 0.05 == pytest.approx(4.541 * math.sqrt(PRIOR_SPREAD**2 / 3 / 3), rel=1e-3)


def test_too_few_pairs_are_no_interval() -> None:
    """Two tell too little about how far pairs differ."""
    assert interval([0.5] * 2, 0.01) is None
    assert interval([0.5] * FEWEST_PAIRS, 0.01) is not None


@pytest.mark.parametrize(
    ("estimate", "half", "said"),
    [
        (0.0, 0.01, "ok"),
        (0.006, 0.01, "ok"),
        (0.015, 0.006, "regressed"),
        (0.007, 0.001, "regressed"),
        (0.015, 0.012, "open"),
        (0.0, 0.04, "open"),
        (-0.015, 0.006, "improved"),
        (-0.1, 0.2, "open"),
    ],
)
def test_the_whole_interval_decides(estimate: float, half: float, said: str) -> None:
    """With a tolerance of 2 %: all of it beyond a quarter of that, or a change of 2 % ruled out; else nothing."""
    one = Interval(estimate, 1.0, 20, 0.01)
    spread = half / one.half

    assert Interval(estimate, spread, 20, 0.01).decide(0.02)[0] == said


@given(some_differences, st.floats(0, 1))
def test_slower_never_looks_better(differences: list[float], by: float) -> None:
    """Pairs in all of which B was slower still make the verdict no better."""
    found = [interval(sides, 0.01) for sides in (differences, [one + by for one in differences])]
    before, after = [one.decide(0.03)[0] if one else "" for one in found]

    assert BADNESS[after] >= BADNESS[before]
