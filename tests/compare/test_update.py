"""The parameter update against one rank in fp32: equal for every engine, and red if the engine computes a wrong one."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.compare.rules import compare_metric
from perfsuite.compare.scope import Scope

ROUNDING = 1e-5
LOW = 2e-2
CELLS = {
    "single": "gpt2_tiny-single+acc2+nodrop-cpu_x1",
    "ddp": "gpt2_tiny-ddp+acc2+nodrop-cpu_x2",
    "zero1": "gpt2_tiny-zero1+acc2+nodrop-cpu_x2",
    "zero2": "gpt2_tiny-zero2+acc2+nodrop-cpu_x2",
    "zero3": "gpt2_tiny-zero3+acc2+nodrop-cpu_x2",
    "fsdp1": "gpt2_tiny-fsdp1+acc2+nodrop-cpu_x2",
    "fsdp2": "gpt2_tiny-fsdp2+acc2+nodrop-cpu_x2",
    "tp": "llama_tiny-tp+dp2+acc2+nodrop-cpu_x4",
    "autotp": "llama_tiny-autotp+acc2+nodrop-cpu_x2",
    "pp_1f1b": "gpt2_tiny-pp_1f1b+acc2+nodrop-cpu_x2",
    "pp_deepspeed": "gpt2_tiny-pp_deepspeed+acc2+nodrop-cpu_x2",
}
FAULTS = ("wrong_reduction", "last_micro_batch", "not_divided", "wrong_scale")
WITHOUT = {("single", "wrong_reduction"), ("autotp", "wrong_reduction")}  # they reduce nothing over replicas here
QUICK = {
    ("single", "last_micro_batch"),
    ("ddp", "not_divided"),
    ("pp_deepspeed", "wrong_scale"),
}


@pytest.fixture
def verdict(measure, catalog):
    """The line of a metric for a cell with a fault, compared with the cell without it."""
    (metric,) = (one for one in catalog.metrics("training") if one.name == "update_error")

    def compare(cell, fault):
        good, bad = measure(cell), measure(cell, f"update_faults:{fault}")
        assert (good.outcome, bad.outcome) == ("fits", "fits"), (good.failure, bad.failure)
        return compare_metric(metric, Scope(bad, good, parse_cell(cell, catalog).strategy.name))

    return compare


@pytest.mark.parametrize(
    ("engine", "fault"),
    slow_unless(
        QUICK.__contains__,
        [(engine, fault) for engine in CELLS for fault in FAULTS if (engine, fault) not in WITHOUT],
    ),
)
def test_wrong_update_is_red(verdict, engine, fault):
    """Each engine's broken reduction, accumulation and scale, by the update alone."""
    assert verdict(CELLS[engine], fault).status == "regressed"


@pytest.mark.parametrize("engine", slow_unless({"single"}.__contains__, ["single", "ddp"]))
def test_freed_gradients_are_red(verdict, engine):
    """The engine itself forgets all micro-batches but the last."""
    assert verdict(CELLS[engine], "forgets").status == "regressed"


@pytest.mark.parametrize("engine", slow_unless({"fsdp2"}.__contains__, ["single", "ddp", "fsdp1", "fsdp2", "pp_1f1b"]))
def test_measured_model_is_released_first(measure, engine):
    """Two of them may not fit where one does. DeepSpeed and transformers' Trainer keep theirs."""
    measurement = measure(CELLS[engine], "update_faults:still_alive")

    assert measurement.outcome == "fits", measurement.failure


@pytest.mark.parametrize("engine", slow_unless({"zero3", "fsdp2", "pp_deepspeed"}.__contains__, CELLS))
def test_update_is_that_of_one_rank(measure, engine):
    """Accumulation, padding that differs between ranks, shards and stages: all add up to the reference's update."""
    assert measure(CELLS[engine]).readings["update_error"].value < ROUNDING


def test_reference_needs_no_method_that_chooses_attention(measure):
    """The reference's attention is chosen when its model is built, as every release of transformers can."""
    measurement = measure(CELLS["single"], "update_faults:cannot_choose_attention")

    assert measurement.outcome == "fits", measurement.failure
    assert measurement.readings["update_error"].value < ROUNDING
