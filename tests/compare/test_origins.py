"""Digests explain a loss that differs, and are red nowhere else."""

import pytest
from gate_samples import measurement

from perfsuite.compare.merge_launches import merge
from perfsuite.compare.origins import origins, with_origins
from perfsuite.meters.first_data import METRICS
from perfsuite.records.digests import BEFORE, STEPS
from perfsuite.records.reasons import Origin, StepDiffers
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.show.text.reasons import words_of

USUAL = {
    "sample_order": {BEFORE: ["a", "b"], STEPS: ["c", "d", "e"]},
    "first_batches": {"input_ids": ["1", "2"], "labels": ["3", "4"]},
    "first_inputs": {},
    "initial_weights": {"wte.weight": ["5"], "lm_head.weight": ["6"]},
}


def began_with(**digests):
    """A measurement with these in place of USUAL's."""
    found = {name: Reading(value=len(names), digests=names) for name, names in (USUAL | digests).items()}
    return measurement(**found)


def found(first=0, **digests):
    """What differs from USUAL, of a loss that differs in that step first."""
    return list(origins(began_with(), began_with(**digests), first))


OTHER = {"input_ids": ["1", "2"], "labels": ["9", "4"]}


@pytest.mark.parametrize(
    ("digests", "expected"),
    [
        ({}, []),
        ({"first_batches": OTHER}, [Origin(metric="first_batches", names=["labels"])]),
        ({"first_batches": {"input_ids": ["1"], "labels": ["3"]}}, []),  # fewer were seen
        ({"first_batches": USUAL["first_batches"] | {"mask": ["7"]}}, [Origin(metric="first_batches", names=["mask"])]),
        ({"first_batches": {"input_ids": ["1", "2"]}}, [Origin(metric="first_batches", names=["labels"])]),
        ({"first_inputs": {"labels": ["8"]}}, [Origin(metric="first_inputs", names=["labels"])]),
        (
            {"initial_weights": {"wte.weight": ["5"], "lm_head.weight": ["0"]}},
            [Origin(metric="initial_weights", names=["lm_head.weight"])],
        ),
        ({"sample_order": {BEFORE: ["x", "b"], STEPS: ["y"]}, "first_batches": OTHER}, [Origin(metric="sample_order")]),
        ({"sample_order": {BEFORE: ["a", "b"], STEPS: ["c", "z"]}}, []),  # after the first step that differs
    ],
)
def test_what_differs_is_named(digests, expected):
    """Other samples are other batches, so only the first of these is named."""
    assert found(**digests) == expected


def test_an_order_may_differ_later():
    """From the step on in which the loss differs, too."""
    assert found(1, sample_order={BEFORE: ["a", "b"], STEPS: ["c", "z"]}) == [Origin(metric="sample_order", since=1)]


def test_what_does_not_repeat_tells_nothing():
    """Two launches of a script without a seed differ from each other."""
    launches = [began_with(first_batches={"labels": [digest]}) for digest in "34"]
    old = merge(launches, METRICS)

    assert old.readings["first_batches"].digests == {"labels": []}
    assert list(origins(old, began_with(first_batches={"labels": ["5"]}), 0)) == []


def test_the_line_that_differs_has_the_evidence():
    """In words, and no other line has it."""
    reason = StepDiffers(first=0, differing=1, steps=2)
    lines = [
        Line(metric=name, title=name, status=Status.REGRESSED, old=1.0, new=2.0, reason=why)
        for name, why in (("peak", None), ("loss", reason), ("norm", reason))
    ]
    changed = began_with(first_batches=OTHER, initial_weights={"wte.weight": ["9"], "lm_head.weight": ["6"]})
    peak, loss, norm = with_origins(lines, began_with(), changed)

    assert (peak, norm) == (lines[0], lines[2])
    assert loss.reason is not None
    assert words_of(loss.reason) == (
        "differs in step 0 first, in 1 of 2 steps; the batch differs: labels; initial weights differ: wte.weight"
    )
