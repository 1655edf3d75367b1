"""Less work is an improvement only if the numbers say the same training."""

import msgspec
import pytest
from gate_samples import baseline, measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.records.sample import Reading
from perfsuite.show.text.reasons import words_of

CELL = "train-script-cpu_x2"
METRICS = Catalog().metrics("script")


def said(calls, norm, cell=CELL):
    """The verdict on a script with so many operators, and that norm of its parameters."""
    readings = {"operators": Reading(value=calls), "parameters_norm": Reading(value=norm, samples=[norm])}
    now = msgspec.structs.replace(measurement(), cell=cell, readings=readings)
    readings = {"operators": Reading(value=100), "parameters_norm": Reading(value=3.0, samples=[3.0])}
    old = msgspec.structs.replace(baseline(), cell=cell, measurement=msgspec.structs.replace(now, readings=readings))
    metrics = [one for one in METRICS if one.name in readings]
    return judge(now, old, metrics, strategy="script")


@pytest.mark.parametrize(
    ("calls", "norm", "status"),
    [
        (80, 3.0, "improved"),
        (80, 3.000006, "improved"),  # as other kernels round
        (80, 3.00006, "regressed"),  # within the bound of a norm
        (100, 3.00006, "ok"),
    ],
)
def test_an_improvement_is_the_same_training(calls, norm, status):
    """To the rounding of other kernels; the bound of a norm is wider."""
    assert said(calls, norm).status == status


def test_another_training_is_named():
    """By the number that moved."""
    line = next(line for line in said(80, 3.00006).lines if line.metric == "operators")

    assert words_of(line.reason) == "less work, but another training: norm of the parameters moved with it"
    assert said(80, 3.00006).accept == "regressed"


def test_a_cell_of_the_catalog_has_a_reference():
    """Its update is compared with one, so less work is less work."""
    assert said(80, 3.00006, "gpt2_tiny-single-cpu_x2").status == "improved"


def test_less_to_train_is_no_improvement():
    """Model FLOPs must not differ, so fewer hardware FLOPs with them are not better."""
    readings = {"model_flop": Reading(value=100), "hardware_flop": Reading(value=100)}
    old = msgspec.structs.replace(measurement(), readings=readings)
    now = msgspec.structs.replace(old, readings={name: Reading(value=96) for name in readings})
    metrics = [one for one in METRICS if one.name in readings]
    said = judge(now, msgspec.structs.replace(baseline(), measurement=old), metrics, strategy="zero3")

    assert [line.status for line in said.lines] == ["regressed", "regressed"]


def test_a_smaller_table_is_no_less_training():
    """A release that computes rotary positions once for all rows has fewer FLOPs, by far less than a layer's."""
    readings = {"model_flop": Reading(value=113_247_232), "operators": Reading(value=853)}
    old = msgspec.structs.replace(measurement(), readings=readings)
    now = msgspec.structs.replace(
        old, readings={"model_flop": Reading(value=113_246_208), "operators": Reading(value=844)}
    )
    metrics = [one for one in METRICS if one.name in readings]
    said = judge(now, msgspec.structs.replace(baseline(), measurement=old), metrics, strategy="zero3")

    assert {line.metric: line.status for line in said.lines} == {"model_flop": "immaterial", "operators": "improved"}
