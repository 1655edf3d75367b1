"""fp8 multiplies in float8, on one rank and on several, and a cell that does not is red."""

import re

import pytest
from parity import difference_of, readings_of
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

LAYERS = 14  # of llama_tiny: two blocks of seven matrices
ELEMENTS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192)  # of their weights
ROUNDING = 2**-4  # of e4m3's three bits of mantissa; e5m2, of gradients, has two
RECIPES = ("fp8", "fp8_rowwise")


@pytest.mark.parametrize("recipe", slow_unless("fp8_rowwise".__eq__, RECIPES))
def test_float8_trains_near_bf16(measure, recipe):
    """Every layer multiplies three times in float8; the loss is bf16's but for the rounding, and is not bf16's."""
    half, float8 = (readings_of(measure, f"llama_tiny-single+{name}+nodrop-cpu_x1-b4") for name in ("bf16", recipe))

    assert float8["float8_matmuls"].value == 3 * LAYERS
    assert "float8_matmuls" not in half
    assert 0 < difference_of(half, float8) < 2**-9
    assert half["update_error"].value < float8["update_error"].value < 2 * ROUNDING


@pytest.mark.parametrize("engine", ["ddp", pytest.param("fsdp2", marks=pytest.mark.slow)])
def test_float8_means_the_same_on_every_engine(measure, engine):
    """Two ranks with half the samples each differ from one rank by the rounding of their tensors' scales alone."""
    single = readings_of(measure, "llama_tiny-single+fp8_rowwise+nodrop-cpu_x1-b4")
    parallel = readings_of(measure, f"llama_tiny-{engine}+fp8_rowwise+nodrop-cpu_x2")

    assert parallel["float8_matmuls"].value == 3 * LAYERS
    assert difference_of(single, parallel) < 2**-9


def test_weights_are_gathered_in_float8(measure):
    """One byte less than in bf16 of each element, twice; torch's scale of a whole weight is the same on every rank."""
    half, float8 = (readings_of(measure, f"llama_tiny-fsdp2+{name}+nodrop-cpu_x2") for name in ("fp8", "fp8_gather"))
    sent = [one["communication_bytes"].parts["all_gather"] for one in (half, float8)]

    assert sent[0] - sent[1] == 2 * ELEMENTS
    assert sent[1] == float8["communication_theory_bytes"].parts["all_gather"]
    assert float8["float8_matmuls"].value == 3 * LAYERS
    assert difference_of(half, float8) < 2**-9


@pytest.mark.parametrize("fault", ["float8_lost", "float8_emulated"])
def test_silent_fallback_is_red(measure, fault):
    """The layers are torchao's still, but nothing multiplies in float8."""
    measurement = measure("llama_tiny-single+fp8-cpu_x1", f"perfsuite.rank.faults.layers:{fault}")

    assert measurement.outcome == "failed"
    assert (
        f"at least {3 * LAYERS} times in a step of {LAYERS} layers, but it did so 0 times"
        in measurement.failure.message
    )


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("llama_tiny-single+mxfp8-cpu_x1", "compute capability 10"),
        ("llama_tiny-single+fp8-a100_80g_x1", "a100_80g has no float8 arithmetic"),
        ("llama_tiny-tp+fp8-cpu_x2", "plans of their own"),
        ("llama_tiny-single+fp8+lora-cpu_x1", "peft wraps"),
        ("llama_tiny-ddp+fp8_gather-cpu_x2", "ddp does not ask weights what to gather of them"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What cannot be is refused before anything runs."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_cell(cell, catalog)


def test_model_without_such_layers_is_refused(measure):
    """GPT-2's layers are transformers' Conv1D."""
    measurement = measure("gpt2_tiny-single+fp8-cpu_x1")

    assert measurement.outcome == "unsupported"
    assert "GPT2LMHeadModel has none besides its head" in measurement.failure.message
