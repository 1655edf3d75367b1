"""A number that each launch has a little different is red if it is much worse."""

import pytest
from gate_samples import measurement

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules import RULES
from perfsuite.compare.scope import Scope
from perfsuite.records.sample import Reading
from perfsuite.show.text.line_words import limit_text
from perfsuite.system.units import BYTES

METRIC = Metric("it", "it", BYTES, hold="about", bound=0.1)


@pytest.mark.parametrize(("new", "status"), [(100, "ok"), (110, "ok"), (111, "regressed"), (1, "ok"), (-1, "ok")])
def test_worse_is_what_exceeds_the_bound(new, status):
    """In the metric's direction alone."""
    line = RULES["about"].hold(METRIC, Reading(value=new), Reading(value=100), Scope(measurement(), measurement(), ""))

    assert line is not None
    assert line.status == status


@pytest.mark.parametrize("hold", ["about", "most"])
def test_a_small_number_may_differ_by_the_slack(hold):
    """1.70 and 2.01 MiB of a small script are two launches of one state; 400 MiB more are not."""
    metric, there = Metric("it", "it", BYTES, hold=hold, bound=0.1, slack=2**20), Reading(value=1_782_579)
    scope = Scope(measurement(), measurement(), "")
    near, far = (RULES[hold].hold(metric, Reading(value=new), there, scope) for new in (2_107_638, 421_213_439))

    assert near is not None
    assert far is not None
    assert (near.status, far.status) == ("ok", "regressed")
    assert limit_text(near) == limit_text(far) == "up to 2.70 MiB"
    assert not RULES[hold].differs(metric, there, Reading(value=2_107_638), "")


def test_launches_agree_within_the_bound():
    """On both sides."""
    differ = [RULES["about"].differs(METRIC, Reading(value=100), Reading(value=other), "") for other in (90, 110, 89)]

    assert differ == [False, False, True]
