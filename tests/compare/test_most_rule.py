"""Launches of one script see different numbers of its later steps, and only those that both saw are compared."""

import pytest
from gate_samples import measurement

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules import RULES
from perfsuite.compare.scope import Scope
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES

METRIC = Metric("it", "it", BYTES, hold="most", bound=0.1)
OLD = [100.0, 90.0, 90.0]


def reading(samples):
    """With the largest of them."""
    return Reading(value=max(samples), samples=samples)


@pytest.mark.parametrize(
    ("samples", "status"),
    [([100.0], "ok"), ([110.0], "ok"), ([90.0, 111.0], "regressed"), ([90.0, 90.0, 90.0, 500.0], "ok"), ([1.0], "ok")],
)
def test_a_step_that_the_other_side_did_not_see_says_nothing(samples, status):
    """The fourth is beyond the baseline's."""
    line = RULES["most"].hold(METRIC, reading(samples), reading(OLD), Scope(measurement(), measurement(), ""))

    assert line is not None
    assert line.status == status


def test_readings_without_samples_are_compared_as_they_are():
    """Those of older records."""
    line = RULES["most"].hold(METRIC, Reading(value=111), reading(OLD), Scope(measurement(), measurement(), ""))

    assert line is not None
    assert line.status == "regressed"


@pytest.mark.parametrize(("samples", "differs"), [([95.0], False), ([89.0], True), ([100.0, 0.0, 0.0, 999.0], False)])
def test_launches_agree_on_the_steps_that_both_saw(samples, differs):
    """On both sides of the bound."""
    assert RULES["most"].differs(METRIC, reading(OLD), reading(samples), "") == differs
