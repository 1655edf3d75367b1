"""ONNX Runtime's inference is torch's: the same losses, its bytes counted and repeatable, another model seen."""

import dataclasses

import pytest
from parity import difference_of
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.run.runner import Runner

FAMILIES = ["gpt2_tiny", "t5_tiny", "llama_tiny", "bloom_tiny"]
QUICK = slow_unless("gpt2_tiny".__eq__, FAMILIES)


@pytest.mark.parametrize("model", QUICK)
def test_losses_are_those_of_forward(measure, model):
    """Every step's loss is torch's within rounding, and within a thousandth with weights in 8 bits."""
    plain, exported, small = (
        measure(f"{model}-{engine}-cpu_x1").readings for engine in ("forward", "onnxruntime", "onnxruntime_int8")
    )

    assert difference_of(plain, exported) < 1e-5
    assert 1e-6 < difference_of(plain, small) < 1e-2


@pytest.mark.parametrize("model", QUICK)
def test_its_weights_are_counted(measure, model):
    """The session keeps the model's parameters, and torch no copy; what is in 8 bits takes less than half of them."""
    plain, exported, small = (
        measure(f"{model}-{engine}-cpu_x1").readings["peak_memory_bytes"].parts["parameters"]
        for engine in ("forward", "onnxruntime", "onnxruntime_int8")
    )

    assert 0.9 * plain < exported < 1.5 * plain
    assert small < exported / 2


def test_what_torch_does_not_see_is_not_counted(measure):
    """There are no hardware FLOPs, with the reason; model FLOPs are those of forward."""
    plain, exported = (measure(f"gpt2_tiny-{engine}-cpu_x1") for engine in ("forward", "onnxruntime"))

    assert exported.readings["model_flop"].value == plain.readings["model_flop"].value
    assert "hardware_flop" not in exported.readings
    assert "torch's counter does not see" in exported.uncounted["hardware_flop"]


def test_memory_repeats_itself(measure, runner, catalog):
    """The peak and its parts are equal in another launch."""
    first = measure("gpt2_tiny-onnxruntime-cpu_x1").readings["peak_memory_bytes"]
    again = runner.measure(parse_cell("gpt2_tiny-onnxruntime-cpu_x1", catalog)).readings["peak_memory_bytes"]

    assert (again.value, again.parts) == (first.value, first.parts)


def test_too_little_memory_is_seen(measure, runner, catalog):
    """Under a capacity that lacks a thousand bytes at its peak, an allocation of ONNX Runtime's is refused."""
    cell = "gpt2_tiny-onnxruntime-cpu_x1-b16"
    peak = int(measure(cell).readings["peak_memory_bytes"].value)
    small = Runner(catalog, dataclasses.replace(runner.settings, capacity_bytes=peak - 1_000))
    failed = small.measure(parse_cell(cell, catalog))
    small.close()

    assert failed.outcome == "oom", failed.failure
    assert 0 < (failed.failure.missing_bytes or 0) <= 1_000
    assert "std::bad_alloc" in failed.failure.message


def test_another_model_is_seen(measure):
    """A session with another matrix is refused."""
    broken = measure("gpt2_tiny-onnxruntime-cpu_x1", "layout_faults:other_weights")

    assert broken.outcome == "failed"
    assert "The logits of ONNX Runtime may differ by 0.0001" in broken.failure.message
