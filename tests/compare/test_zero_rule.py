"""The rule of what must not happen: more than 0 is red without a baseline, and a baseline may have accepted some."""

import pytest
from gate_samples import METRICS, baseline, measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.records.sample import Reading
from perfsuite.show.text.verdict_words import headline

WRONG = Catalog().all("metric")["wrongly_loaded_tensors"]


def verdict(new, old):
    """The verdict on two counts; None: that side lacks it."""
    new, old = (
        {} if value is None else {WRONG.name: Reading(value=value, parts={"optimizer_state": value} if value else {})}
        for value in (new, old)
    )
    return judge(measurement(**new), baseline(**old), [*METRICS, WRONG], strategy="fsdp2")


@pytest.mark.parametrize(
    ("new", "old", "status"),
    [(0, 0, "ok"), (1, 0, "regressed"), (1, None, "regressed"), (0, None, "not compared"), (0, 1, "improved")],
)
def test_more_than_nothing_is_red(new, old, status):
    """An old baseline that lacks the count excuses nothing."""
    line = next(line for line in verdict(new, old).lines if line.metric == WRONG.name)

    assert line.status == status


def test_no_first_baseline_is_recorded_of_it():
    """The reason names what is wrong."""
    wrong = measurement(**{WRONG.name: Reading(value=56, parts={"optimizer_state": 56})})
    said = judge(wrong, None, [*METRICS, WRONG], strategy="fsdp2")

    assert said.status == "regressed"
    assert "tensors wrong after a load is 56, and must be 0; most in optimizer_state (56)" in headline(said)
