"""Layers that are compiled alone: what torch.compile did in a launch is counted, and what breaks it is named."""

import pytest
from parity import difference_of

CELL = "gpt2_tiny-single+compile_blocks+nodrop-cpu_x1-b4"
PLAIN = "gpt2_tiny-single+nodrop-cpu_x1-b4"
SELFTEST = "perfsuite.rank.faults.layers"
COUNTS = ("graph_breaks", "compilations", "recompilations", "guards")


def _readings(measure, *faults):
    measurement = measure(CELL, "compiled:without_code", *faults)
    assert measurement.outcome == "fits", measurement.failure
    return measurement.readings


@pytest.fixture(scope="module")
def compiled(measure):
    return _readings(measure)


def test_layers_of_one_class_are_compiled_once(measure, compiled):
    """One function for both layers, whole, and never again; no other cell has such counts."""
    plain = measure(PLAIN).readings

    assert compiled["compilations"].parts == {"forward_with_checkpointing": 1}
    assert compiled["graph_breaks"].value == compiled["recompilations"].value == 0
    assert compiled["guards"].value > 100
    assert compiled["compile_seconds"].value > 0
    assert not plain.keys() & {*COUNTS, "compile_seconds"}
    assert difference_of(plain, compiled) < 1e-4


def test_counts_repeat(measure, compiled):
    """Another launch counts the same."""
    again = _readings(measure)

    assert {name: again[name].parts for name in COUNTS} == {name: compiled[name].parts for name in COUNTS}


def test_graph_break_is_counted_with_its_reason(measure):
    """It cuts the function that has it and the one that calls it, and torch's own words are the part."""
    broken = _readings(measure, f"{SELFTEST}:graph_break")

    assert broken["graph_breaks"].parts == {"Call to `torch._dynamo.graph_break()`": 2}
    assert broken["recompilations"].value == 0
    assert broken["compilations"].value > 1


def test_recompilation_per_step_is_counted_with_its_reason(measure):
    """A name that a layer reads, and that changes, compiles the layers again. Memory grows, and the text says why."""
    measurement = measure(CELL, "compiled:without_code", f"{SELFTEST}:recompiles", steps=3)

    assert measurement.outcome == "failed"
    assert "torch compiled 8 times again, and keeps all versions" in measurement.failure.message
    assert "name_of_step" in measurement.failure.message


def test_recompilation_is_counted_with_its_reason(measure, compiled):
    """One in the recorded steps leaves nothing behind, so it is the metric that differs."""
    again = _readings(measure, "compiled:compiles_twice")

    assert again["graph_breaks"].value == compiled["graph_breaks"].value
    assert again["recompilations"].parts == {"changed": 1}  # the forward that the fault put there
    assert any("name_of_step" in reason for reason in again["recompilations"].suspects)


@pytest.mark.slow
def test_compiling_layers_changes_no_number(measure):
    """Inductor's kernels compute the same losses in less memory."""
    plain, fused = (measure(cell).readings for cell in (PLAIN, CELL))

    assert difference_of(plain, fused) < 1e-4
    assert fused["peak_memory_bytes"].value < plain["peak_memory_bytes"].value
