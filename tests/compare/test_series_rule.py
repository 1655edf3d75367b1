"""Numbers by name: an evaluation loss that doubles is red, one that the other side has not seen is not."""

import math

import pytest
from gate_samples import measurement

from perfsuite.compare.merge_launches import merge
from perfsuite.compare.rules import RULES
from perfsuite.compare.scope import Scope
from perfsuite.meters.logged_numbers import METRICS
from perfsuite.records.sample import Reading

(METRIC,) = METRICS
OLD = {"eval_loss": [2.0, 1.5], "accuracy": [0.5, 0.6]}


def reading(series):
    """Of these numbers."""
    return Reading(value=len(series), series=series)


def line_of(**series):
    """With these numbers in place of OLD's."""
    return RULES["series"].hold(METRIC, reading(OLD | series), reading(OLD), Scope(measurement(), measurement(), ""))


@pytest.mark.parametrize(
    ("series", "status"),
    [
        ({"eval_loss": [2.001, 1.5]}, "ok"),
        ({"eval_loss": [4.0, 3.0]}, "regressed"),
        ({"eval_loss": [1.0]}, "regressed"),  # lower is no better
        ({"eval_loss": [2.0, None]}, "regressed"),
        ({"eval_loss": [2.0]}, "ok"),
        ({"eval_loss": [2.0, 1.5, 9.0], "other": [1.0]}, "ok"),
    ],
)
def test_common_numbers_agree(series, status):
    """The last two have fewer and more of them."""
    assert line_of(**series).status == status


def test_the_name_that_differs_most_is_the_line():
    """With its two numbers; the others are evidence."""
    line = line_of(eval_loss=[4.0, 3.0], accuracy=[0.5, 0.61])

    assert (line.old, line.new) == (2.0, 4.0)
    assert line.change is not None
    assert math.isclose(line.change, 1.0)
    assert [move.part for move in line.moves] == ["eval_loss", "accuracy"]


def test_a_number_that_does_not_repeat_is_left_out():
    """Of several launches of one side."""
    launches = [measurement(logged_numbers=reading(series)) for series in (OLD, OLD | {"accuracy": [0.7]})]

    assert merge(launches, METRICS).readings["logged_numbers"].series == {"eval_loss": OLD["eval_loss"]}
