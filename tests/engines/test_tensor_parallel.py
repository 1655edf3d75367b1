"""Tensor parallelism by transformers' own plan: what it divides, computes and sends, and what it refuses."""

import dataclasses
import re
from dataclasses import replace

import pytest
from faults import named
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.rank.tp_plan import UNDIVIDED

BOUND = 1e-4
SCALARS = 64  # bytes: the squares of the divided gradients are summed over the ranks


@pytest.fixture(scope="module")
def models(catalog):
    """A catalog with two variants of llama_tiny: as many key-value heads as heads, and a tied head."""
    base = catalog.get("model", "llama_tiny")
    key_and_value = 2 * 2 * 64 * 32  # two layers' key and value projections double from 32 to 64 features
    wide = dataclasses.replace(
        base,
        name="llama_wide",
        parameters=base.parameters + key_and_value,
        config=base.config | {"num_key_value_heads": 4},
        divisible=base.divisible | {"key-value heads": 4},
    )
    tied = dataclasses.replace(
        base,
        name="llama_tied",
        parameters=base.parameters - 512 * 64,
        config=base.config | {"tie_word_embeddings": True},
    )
    return Catalog(extra_models=(wide, tied))


@pytest.fixture(scope="module")
def train(runner, models):
    """``train("llama_wide-tp-cpu_x4")`` measures a cell of those models, each only once."""
    known = {}

    def train(cell_id, *faults):
        key = (cell_id, *faults)
        if key not in known:
            cell = parse_cell(cell_id, models)
            known[key] = runner.measure(replace(cell, faults=tuple(map(named, faults))))
        return known[key]

    return train


@pytest.mark.parametrize("model", ["gpt2_tiny", "bloom_tiny", "t5_tiny"])
def test_a_model_without_a_plan_is_refused(catalog, model):
    """transformers has no plan for it, and the refusal says so."""
    with pytest.raises(Refused, match="transformers has no tensor-parallel plan"):
        parse_cell(f"{model}-tp-cpu_x2", catalog)


@pytest.mark.parametrize(("hardware", "reason"), [("cpu_x4", "2 key-value heads"), ("cpu_x3", "4 heads")])
def test_a_width_that_does_not_divide_the_heads_is_refused(catalog, hardware, reason):
    """A rank has whole heads, of keys and values too."""
    with pytest.raises(Refused, match=f"llama_tiny's {reason} are not divisible by"):
        parse_cell(f"llama_tiny-tp-{hardware}", catalog)


def test_replicas_leave_the_rest_to_tensor_parallelism(catalog):
    """The width that must divide the heads is what the replicas leave."""
    cell = parse_cell("llama_tiny-tp+dp2-cpu_x4", catalog)

    assert lay_out(cell.strategy, 4).tensor == 2


@pytest.mark.parametrize(
    ("single", "parallel"),
    slow_unless(
        lambda case: "acc2" in case[0],
        [
            ("llama_tiny-single-cpu_x1", "llama_tiny-tp-cpu_x2"),
            ("llama_wide-single-cpu_x1", "llama_wide-tp-cpu_x4"),
            ("llama_tied-single-cpu_x1", "llama_tied-tp-cpu_x2"),
            ("qwen3_tiny-single-cpu_x1", "qwen3_tiny-tp-cpu_x2"),  # each head's norm is whole on every rank
            ("gemma3_tiny-single-cpu_x1", "gemma3_tiny-tp-cpu_x2"),
            ("llama_tiny-single-cpu_x1-b4", "llama_tiny-tp+dp2-cpu_x4"),
            ("llama_tied-single-cpu_x1-b4", "llama_tied-tp+dp2-cpu_x4"),
            ("llama_tiny-single+acc2+clip+ckpt-cpu_x1", "llama_tiny-tp+acc2+clip+ckpt-cpu_x2"),
        ],
    ),
)
def test_tensor_parallelism_agrees_with_single(train, single, parallel):
    """Every step's loss and gradient norm are those of one rank on the same global batch."""
    assert worst(train(single), train(parallel), "loss") < BOUND
    assert worst(train(single), train(parallel), "gradient_norm") < BOUND


@pytest.mark.slow
def test_bf16_agrees_with_single(train):
    """In bf16 sums are rounded in another order, so losses agree to bf16's precision only."""
    single, parallel = train("llama_tiny-single+bf16-cpu_x1"), train("llama_tiny-tp+bf16-cpu_x2")

    assert worst(single, parallel, "loss") < 2**-8
    assert worst(single, parallel, "gradient_norm") < 2**-8


@pytest.mark.parametrize(
    "cell_id",
    slow_unless(
        {"llama_tiny-tp-cpu_x2", "llama_tiny-tp+acc2+clip+ckpt-cpu_x2"}.__contains__,
        [
            "llama_tiny-tp-cpu_x2",
            "llama_wide-tp-cpu_x4",
            "llama_tied-tp-cpu_x2",
            "llama_tiny-tp+bf16-cpu_x2",
            "llama_tiny-tp+pure_bf16-cpu_x2",
            "llama_tiny-tp+ckpt_selective-cpu_x2",
            "llama_tiny-tp+acc2+clip+ckpt-cpu_x2",
            "llama_tiny-tp+dp2-cpu_x4",
            "llama_tied-tp+dp2-cpu_x4",
        ],
    ),
)
def test_messages_are_those_of_the_theory(train, cell_id):
    """The counted bytes of every collective are the plan's; only scalars come on top."""
    readings = train(cell_id).readings
    counted, theory = (readings[name].parts for name in ("communication_bytes", "communication_theory_bytes"))

    assert counted.keys() == theory.keys() == {"all_gather", "all_reduce"}
    assert all(0 <= counted[name] - size <= SCALARS for name, size in theory.items())


def test_backward_sends_more_than_megatron(train):
    """In fp32 every hidden state is summed twice per layer in forward and five times, not twice, in backward."""
    hidden, layers = 4 * 2 * 64 * 64, 2
    embedding_and_head = 2 * hidden
    sent = train("llama_tiny-tp-cpu_x2").readings["communication_bytes"].parts["all_reduce"]

    assert 0 <= sent - embedding_and_head - layers * (2 + 5) * hidden <= SCALARS


def test_all_ranks_together_compute_what_one_would(train):
    """A rank's FLOPs are those of its parts: an operator on a DTensor has the shape of the whole."""
    whole = train("llama_tiny-single-cpu_x1").readings["hardware_flop"].value

    assert train("llama_tiny-tp-cpu_x2").readings["hardware_flop"].value == whole


def test_a_rank_holds_its_part(train, models):
    """Parameters and optimizer state on a rank are 1/n of the model, and the norms."""
    norms = (2 * 2 + 1) * 64
    held = (models.get("model", "llama_wide").parameters - norms) // 4 + norms
    buffers = 2 * 4 * 8  # the rotary frequencies, which are kept twice
    readings = train("llama_wide-tp-cpu_x4").readings

    assert readings["parameters_bytes"].value == 4 * held + buffers
    assert train("llama_wide-tp-cpu_x4").engine["elements_here"] == held


@pytest.mark.parametrize(
    "fault",
    slow_unless("layout_faults:tp_wrong_norm".__eq__, ["layout_faults:no_average", "layout_faults:tp_wrong_norm"]),
)
def test_replicas_that_drift_apart_are_seen(train, fault):
    """Parts that differ between replicas, or norms that differ between ranks, end the cell."""
    broken = train("llama_tiny-tp+dp2-cpu_x4", fault)

    assert broken.outcome == "failed"
    assert "gradients are not reduced over the ranks" in broken.failure.message


def test_a_whole_matrix_is_not_tensor_parallelism(train):
    """A matrix that every rank holds whole is caught by the check."""
    broken = train("llama_tiny-tp-cpu_x2", "layout_faults:tp_whole_matrix")

    assert broken.outcome == "failed"
    assert "lm_head.weight must be divided over 2 tensor-parallel ranks" in broken.failure.message


@pytest.mark.parametrize(
    ("technique", "reason"),
    [
        ("fp16", "got mixed"),
        ("adafactor", "got mixed"),
        ("adamw8bit", "got mixed"),
        ("cpu_adam", "plain tensor"),
        *UNDIVIDED.items(),
    ],
)
def test_what_cannot_live_with_dtensors_is_refused(catalog, technique, reason):
    """Each was tried, and the reason says what happens."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_cell(f"llama_tiny-tp+{technique}-cpu_x2", catalog)


@pytest.mark.parametrize("technique", sorted(UNDIVIDED))
def test_the_plans_limits_hold_for_every_engine(catalog, technique):
    """What does not fit the plan is refused wherever tp<n> divides a model."""
    with pytest.raises(Refused, match="tensor-parallel ranks"):
        parse_cell(f"llama_tiny-fsdp2+tp2+{technique}-cpu_x4", catalog)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("technique", "bound"),
    slow_unless(
        lambda case: case[0] == "adamw4bit_ao",
        [
            ("adamw_fused", BOUND),
            ("adamw_foreach", BOUND),
            ("sgd_momentum", BOUND),
            ("ckpt_selective", BOUND),
            ("adamw4bit_ao", 1e-3),  # a difference of one unit in the last place can change a 4-bit code
        ],
    ),
)
def test_techniques_change_no_number(train, technique, bound):
    """What changes no number of one rank's steps changes none of a divided model's."""
    single = train(f"llama_tiny-single+{technique}-cpu_x1")
    parallel = train(f"llama_tiny-tp+{technique}-cpu_x2")

    assert worst(single, parallel, "loss") < bound
    assert worst(single, parallel, "gradient_norm") < bound
