"""The rule of an error against a reference: twice the baseline's, and no first baseline of a wrong one by itself."""

import pytest
from gate_samples import METRICS, baseline, measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.records.sample import Reading
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.verdict_words import accept_text, headline

ERROR = Catalog().all("metric")["update_error"]
MOST = {"lm_head.weight": 1_500_000, "model.norm.weight": 20_000}


def line_of(new, old, strategy="zero3"):
    """The line of the update's error for two values; None: that side lacks it."""
    sides = [{} if value is None else {"update_error": Reading(value=value, suspects=MOST)} for value in (new, old)]
    said = judge(measurement(**sides[0]), baseline(**sides[1]), [*METRICS, ERROR], strategy=strategy)
    return next(line for line in said.lines if line.metric == "update_error")


@pytest.mark.parametrize(
    ("strategy", "new", "old", "status"),
    [
        ("zero3", 9e-4, 2e-7, "ok"),
        ("zero3", 2e-3, 2e-7, "regressed"),
        ("zero3", 2e-7, 0.5, "improved"),
        ("zero3+bf16", 0.02, 0.006, "ok"),
        ("zero3+bf16", 0.06, 0.03, "ok"),
        ("zero3+bf16", 0.0601, 0.03, "regressed"),
        ("zero3+bf16", 0.03, 0.07, "improved"),
    ],
)
def test_error_may_double_above_what_rounding_explains(strategy, new, old, status):
    """Rounding differs a little between releases and machines; a wrong number differs by a factor."""
    assert line_of(new, old, strategy).status == status


def test_red_error_names_the_parameters():
    """Those that differ most, each with its own error."""
    assert note_text(line_of(0.5, 2e-7)) == "most in lm_head.weight (1.5), model.norm.weight (0.02)"


def test_old_baseline_without_the_error_holds_a_right_one_to_nothing():
    """Baselines from before it was measured lack it."""
    assert line_of(2e-7, None).status == "not compared"


def test_wrong_update_is_red_where_an_old_baseline_lacks_the_error():
    """There is nothing to compare with, but no rounding is that large."""
    assert line_of(0.5, None).status == "regressed"


def test_first_baseline_of_a_wrong_update_needs_a_reason():
    """It is no "new" baseline: only the consent that the ledger records a reason for accepts it."""
    said = judge(measurement(update_error=Reading(value=0.5, suspects=MOST)), None, [*METRICS, ERROR], strategy="zero3")

    assert (said.status, accept_text(said, reason=False).rpartition("=")[2]) == ("regressed", "regressed")
    assert "update error is 0.5, and rounding explains 0.1; most in lm_head.weight (1.5)" in headline(said)


def test_low_precision_explains_more():
    """An error that fp32 never has can be bf16's."""
    readings = measurement(update_error=Reading(value=0.2, suspects=MOST))

    assert judge(readings, None, [*METRICS, ERROR], strategy="zero3").status == "regressed"
    assert judge(readings, None, [*METRICS, ERROR], strategy="zero3+bf16").status == "missing"
