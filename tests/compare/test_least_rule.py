"""What must not become less: a save that lost the optimizer's state is no improvement."""

import pytest
from gate_samples import measurement

from perfsuite.compare.rules import RULES
from perfsuite.compare.scope import Scope
from perfsuite.meters.checkpoints import METRICS as OF_CHECKPOINTS
from perfsuite.meters.saves import METRICS
from perfsuite.records.sample import Reading

OLD = {"weights": 8, "optimizer": 24, "random state": 2}


def line_of(metric, **parts):
    """With these parts in place of OLD's."""
    old, new = (Reading(value=sum(held.values()), parts=held) for held in (OLD, OLD | parts))
    return RULES[metric.hold].hold(metric, new, old, Scope(measurement(), measurement(), ""))


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ({}, "ok"),
        ({"optimizer": 0}, "regressed"),
        ({"optimizer": 0, "weights": 99}, "regressed"),  # in sum more
        ({"scaler": 1}, "ok"),  # and not better
    ],
)
def test_no_part_may_become_less(parts, status):
    """Another part's gain does not make up for it."""
    line = line_of(METRICS[0], **parts)

    assert line.status == status
    assert {move.part for move in line.moves} == parts.keys()


def test_a_smaller_checkpoint_is_not_better():
    """Of 83.6 %, as when the optimizer's state is left out of the file."""
    (metric,) = [one for one in OF_CHECKPOINTS if one.name == "checkpoint_bytes"]

    assert line_of(metric, optimizer=0).status == "regressed"
