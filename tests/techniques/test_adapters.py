"""Variants of LoRA: what each keeps, in closed form, and that it trains alike on every engine."""

import pytest
from parity import difference_of
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

HIDDEN, FEED_FORWARD, LAYERS, KEY_VALUE = 64, 192, 2, 32  # llama_tiny's
MATRICES = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KEY_VALUE + 3 * HIDDEN * FEED_FORWARD)  # elements, but the head
ADAPTED = ((HIDDEN, HIDDEN), (HIDDEN, KEY_VALUE))  # q and v, in and out
RANK = 8


def _readings(measure, technique, engine="single", hardware="cpu_x1-b4"):
    measurement = measure(f"llama_tiny-{engine}+{technique}+nodrop-{hardware}")
    assert measurement.outcome == "fits", measurement.failure
    return measurement.readings


@pytest.fixture(scope="module")
def lora(measure):
    return _readings(measure, "lora")


def test_dora_trains_a_magnitude_per_row(measure, lora):
    """One fp32 number for each output of an adapted matrix, and its gradient. It begins where lora does."""
    dora, rows = _readings(measure, "dora"), LAYERS * sum(out for _, out in ADAPTED)

    assert dora["parameters_bytes"].value == lora["parameters_bytes"].value + 4 * rows
    assert dora["gradients_bytes"].value == lora["gradients_bytes"].value + 4 * rows
    assert dora["loss"].samples[0] == pytest.approx(lora["loss"].samples[0], rel=1e-6)
    assert dora["loss"].samples[-1] != lora["loss"].samples[-1]
    assert dora["update_error"].value < 1e-5


def test_qlora_keeps_half_a_byte_per_element(measure, lora):
    """Scales, quantized too, are a buffer of each matrix's state and no parameter. What is trained is lora's."""
    qlora = _readings(measure, "qlora")
    saved = lora["parameters_bytes"].value - qlora["parameters_bytes"].value

    assert saved == pytest.approx(MATRICES * (4 - 0.5), rel=0.01)
    assert qlora["gradients_bytes"].value == lora["gradients_bytes"].value
    assert 0 < difference_of(lora, qlora) < 2**-8
    assert qlora["update_error"].value < 1e-5


def test_eight_bits_keep_a_byte_per_element(measure, lora):
    """And an fp32 scale for each row, which is no parameter."""
    eight = _readings(measure, "lora_int8")
    saved = lora["parameters_bytes"].value - eight["parameters_bytes"].value

    assert saved == pytest.approx(MATRICES * (4 - 1), rel=0.01)
    assert eight["gradients_bytes"].value == lora["gradients_bytes"].value
    assert 0 < difference_of(lora, eight) < 2**-6


def test_frozen_weights_have_the_dtype_of_the_arithmetic(measure, lora):
    """Adapters stay in fp32, and so do their gradients; frozen_fp32 keeps the rest so, too."""
    half, whole = _readings(measure, "lora+bf16"), _readings(measure, "lora+bf16+frozen_fp32")
    adapters = lora["gradients_bytes"].value

    assert whole["parameters_bytes"].value == lora["parameters_bytes"].value
    assert half["gradients_bytes"].value == adapters
    assert 2 * (half["parameters_bytes"].value - adapters) == pytest.approx(
        whole["parameters_bytes"].value - adapters, rel=0.01
    )
    assert difference_of(half, whole) < 2**-6


@pytest.mark.parametrize(
    ("techniques", "each"),
    [
        ("lora+rank16", 16 * sum(map(sum, ADAPTED))),
        ("lora+all_attention", RANK * sum(map(sum, (*ADAPTED, (HIDDEN, HIDDEN), (HIDDEN, KEY_VALUE))))),
    ],
)
def test_rank_and_places_say_what_is_trained(measure, techniques, each):
    """A matrix of n × m has r (n + m) elements of adapters."""
    assert _readings(measure, techniques)["gradients_bytes"].value == 4 * LAYERS * each


@pytest.mark.parametrize(("technique", "engine"), [("qlora", "fsdp2"), ("lora+bf16", "fsdp1"), ("lora+bf16", "fsdp2")])
def test_shards_train_as_whole_ones(measure, technique, engine):
    """FSDP2 divides matrices that are packed into floats, and frozen ones in half precision beside adapters."""
    parallel = _readings(measure, technique, engine, "cpu_x2")

    assert difference_of(_readings(measure, technique), parallel) < 2**-8


@pytest.mark.parametrize("technique", slow_unless("qlora".__eq__, ["dora", "qlora"]))
def test_adapters_mean_the_same_with_ddp(measure, technique):
    """Two ranks with two samples each train as one with four."""
    parallel = _readings(measure, technique, "ddp", "cpu_x2")

    assert difference_of(_readings(measure, technique), parallel) < 1e-4


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("llama_tiny-fsdp1+qlora-cpu_x2", "divides parameters"),
        ("llama_tiny-zero2+qlora-cpu_x2", "in one dtype"),
        ("llama_tiny_l4-pp_gpipe+acc2+qlora-cpu_x2", "bytes cannot require a gradient"),
        ("llama_tiny-tp+dora-cpu_x2", "peft puts the weights"),
        ("llama_tiny-single+rank16-cpu_x1", r"there are none: add \+lora"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What cannot be is refused before anything runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
