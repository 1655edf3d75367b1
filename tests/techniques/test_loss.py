"""A loss in chunks is the loss, on every engine, without the logits of all tokens; what hides them raises."""

import contextlib
import dataclasses
import re

import pytest
from parity import difference_of, readings_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.run.runner import Runner, Settings

CELL = "gpt2_tiny-single+nodrop+chunked_loss-cpu_x1-b4"
WORDS = 8192  # so many that logits are most of the peak
TOKENS, WIDTH = 4 * 64, 64  # of CELL
HALF = 2**-9  # as in test_techniques.py


def test_chunks_change_no_number(measure):
    """Neither losses nor the update nor FLOPs: the products are the same, of fewer rows at a time."""
    whole, chunked = readings_of(measure, CELL.replace("+chunked_loss", "")), readings_of(measure, CELL)

    assert difference_of(whole, chunked) < 1e-5
    assert chunked["update_error"].value < 1e-5
    assert chunked["model_flop"].value == whole["model_flop"].value
    assert chunked["hardware_flop"].value == whole["hardware_flop"].value
    assert not chunked["unknown_operators"].parts


@pytest.mark.parametrize(
    ("engine", "ranks"),
    [
        ("ddp", "cpu_x2"),
        ("zero3", "cpu_x2"),
        pytest.param("fsdp2", "cpu_x2", marks=pytest.mark.slow),
        pytest.param("fsdp1", "cpu_x2", marks=pytest.mark.slow),
        pytest.param("pp_1f1b+acc2", "cpu_x2-b2", marks=pytest.mark.slow),
    ],
)
def test_chunks_mean_the_same_on_every_engine(measure, engine, ranks):
    """The head computes the loss in its own forward, so its weight is there when an engine has divided it."""
    parallel = readings_of(measure, f"gpt2_tiny-{engine}+nodrop+chunked_loss-{ranks}")

    assert difference_of(readings_of(measure, CELL), parallel) < 1e-5
    assert parallel["update_error"].value < 1e-5


@pytest.mark.parametrize("precision", ["bf16", pytest.param("pure_bf16", marks=pytest.mark.slow)])
def test_half_precision_adds_up_in_fp32(measure, precision):
    """torch's own mean of all tokens would be off by percents. Backward multiplies by the head once more."""
    chunked_cell = CELL.replace("+nodrop", f"+{precision}+nodrop")
    whole, chunked = readings_of(measure, chunked_cell.replace("+chunked_loss", "")), readings_of(measure, chunked_cell)
    again = chunked["hardware_flop"].value - whole["hardware_flop"].value

    assert 0 < difference_of(whole, chunked) < HALF
    assert chunked["update_error"].value < 2e-2
    assert 0 <= again - 2 * TOKENS * WIDTH * 512 < 0.01 * again  # and the products of single numbers


@pytest.mark.parametrize(
    "strategy",
    [
        "single+lora+nodrop+chunked_loss",
        "single+acc2+nodrop+chunked_loss",
        pytest.param("single+nodrop+chunked_loss+hf_trainer", marks=pytest.mark.slow),
    ],
)
def test_what_wraps_the_model_keeps_it(measure, strategy):
    """Adapters, several micro-batches with different numbers of labels, and the Trainer's own number of items."""
    chunked = readings_of(measure, f"llama_tiny-{strategy}-cpu_x1")
    whole = readings_of(measure, f"llama_tiny-{strategy.replace('+chunked_loss', '')}-cpu_x1")

    assert difference_of(whole, chunked) < 1e-5
    assert chunked["peak_memory_bytes"].value < whole["peak_memory_bytes"].value


def test_peak_has_no_logits():
    """With a large vocabulary, the peak falls by more than the logits of all tokens in fp32."""
    known = Catalog().get("model", "gpt2_tiny")
    words = dataclasses.replace(
        known, name="words", config={**known.config, "vocab_size": WORDS}, vocabulary=WORDS, parameters=0
    )
    catalog = Catalog(extra_models=(words,))
    with contextlib.closing(Runner(catalog, Settings(steps=1, warmup=0))) as runner:
        whole, chunked = (
            readings_of(lambda cell: runner.measure(parse_cell(cell, catalog)), f"words-single+nodrop{loss}-cpu_x1-b4")
            for loss in ("", "+chunked_loss")
        )

    assert whole["peak_memory_bytes"].value - chunked["peak_memory_bytes"].value > 4 * TOKENS * WORDS
    assert chunked["hardware_flop"].value == whole["hardware_flop"].value


def test_logits_in_place_of_a_loss_raise(measure):
    """A step in which the head does not get the labels must not go on with whole logits."""
    measurement = measure(CELL, "losses:labels_lost")

    assert measurement.outcome == "failed"
    assert "the head returned logits of shape [4, 64, 512] and no loss" in measurement.failure.message


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("t5_tiny-single+chunked_loss-cpu_x1", "not compute its loss by the causal loss function"),
        ("llama_tiny-tp+chunked_loss-cpu_x2", "parts of the head"),
        ("llama_tiny-autotp+chunked_loss-cpu_x2", "parts of the head"),
        ("gpt2_tiny-megatron+chunked_loss-cpu_x1", "computes its own loss"),
        ("gpt2_tiny-pp_deepspeed+acc2+chunked_loss-cpu_x2", "a loss function of its own"),
        ("gpt2_tiny_l4-pp_zero_bubble+acc2+chunked_loss-cpu_x2", "backward called twice"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What cannot be is refused before anything runs."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_cell(cell, catalog)
