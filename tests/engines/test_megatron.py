"""Megatron on a CPU: it agrees with one plain rank in every layout, it is what its name says, and faults are red."""

import importlib.util
from importlib import metadata

import pytest
from faults import named
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.engines import _megatron_on_cpu as cpu
from perfsuite.errors import Refused, Unsupported

BOUND = 1e-4
SCALARS = 64  # bytes: the square of the gradient's norm
MISSING = importlib.util.find_spec("megatron") is None
needs_megatron = pytest.mark.skipif(MISSING, reason="needs megatron-core, of the extra megatron")
SHORT = {"megatron+tp2-cpu_x2-b4", "megatron+tp2+sp-cpu_x2-b4", "megatron_distributed+dp2-cpu_x2"}
PARALLEL = [
    *sorted(SHORT),
    "megatron+acc2-cpu_x2",
    "megatron+dp2-cpu_x2",
    "megatron_interleaved+acc2-cpu_x2",
    "megatron+tp4-cpu_x4-b4",
    "megatron+dp2+tp2-cpu_x4",
    "megatron_distributed+dp2+acc2-cpu_x4-b1",
    "megatron_interleaved+tp2+dp2+acc2-cpu_x8-b1",
    "megatron+tp2+ckpt-cpu_x2-b4",
    "megatron+tp2+sp+ckpt-cpu_x2-b4",
    "megatron_distributed+tp2+dp2+sp+acc2-cpu_x8-b1",
    "megatron+ckpt_selective+acc2-cpu_x2",
]


def without_dropout(strategy):
    engine, _, rest = strategy.partition("-")
    return f"gpt2_tiny_l4-{engine}+nodrop-{rest}"


@needs_megatron
@pytest.mark.parametrize("parallel", slow_unless(SHORT.__contains__, PARALLEL))
def test_megatron_agrees_with_single(measure, parallel):
    """Tensor, data and pipeline parallelism take the same steps as one rank with four samples."""
    single = measure("gpt2_tiny_l4-single+nodrop-cpu_x1-b4")
    other = measure(without_dropout(parallel))

    assert worst(single, other, "loss") < BOUND
    assert worst(single, other, "gradient_norm") < BOUND
    assert other.readings["update_error"].value < BOUND


@needs_megatron
@pytest.mark.parametrize("parallel", slow_unless(SHORT.__contains__, PARALLEL))
def test_messages_are_those_of_the_theory(measure, parallel):
    """The counted bytes of every collective are those of the papers; only a scalar comes on top."""
    readings = measure(without_dropout(parallel)).readings
    counted, theory = (readings[name].parts for name in ("communication_bytes", "communication_theory_bytes"))

    assert counted.keys() == {name for name, size in theory.items() if size}
    assert all(0 <= counted[name] - theory[name] <= SCALARS for name in counted)


@needs_megatron
def test_the_optimizer_is_divided(measure):
    """Each of two replicas has half of the state, and parameters and gradients are whole."""
    readings = measure(without_dropout("megatron_distributed+dp2-cpu_x2")).readings
    parameters = 4 * 241_024

    assert readings["parameters_bytes"].value == readings["gradients_bytes"].value == parameters
    assert parameters <= readings["optimizer_state_bytes"].value < parameters + 256  # the counters of steps


@needs_megatron
@pytest.mark.slow
def test_bf16_keeps_what_megatron_says(measure):
    """18 bytes per parameter: parameters in bf16, gradients, masters and two moments in fp32."""
    readings = measure("gpt2_tiny_l4-megatron+bf16-cpu_x1").readings
    names = ("parameters", "gradients", "master_parameters", "optimizer_state")
    held = sum(readings[f"{name}_bytes"].value for name in names)

    assert 0 <= held - 18 * 241_024 < 1024


@needs_megatron
@pytest.mark.slow
@pytest.mark.parametrize(
    ("parallel", "fault", "change"),
    [
        ("megatron+dp2-cpu_x2", "no_reduction", "not reduced"),
        ("megatron+tp2-cpu_x2", "no_sum", "not reduced"),
        ("megatron+acc2-cpu_x2", "loss_scaled", 2.0),
    ],
)
def test_a_lost_reduction_is_seen(measure, parallel, fault, change):
    """Of gradients over replicas, of hidden states over tensor-parallel ranks, of the loss over micro-batches."""
    cell = without_dropout(parallel)
    broken = measure(cell, f"perfsuite.rank.faults.ranks:megatron_{fault}")

    if isinstance(change, str):
        assert broken.outcome == "failed"
        assert change in broken.failure.message
    else:
        norms = (one.readings["gradient_norm"].samples[0] for one in (measure(cell), broken))
        first, second = norms
        assert second / first == pytest.approx(change, rel=0.02)


@needs_megatron
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("stage_lost", "must hold 1/2 of 4 layers"),
        ("whole_optimizer", "must step 1/2 of"),
        ("norm_unmarked", "must sum the gradient of decoder.layers.0.input_layernorm.weight"),
        pytest.param("norms_apart", "not reduced", marks=pytest.mark.slow),
    ],
)
def test_a_false_name_is_seen(measure, fault, message):
    """A lost layer, an optimizer that is not divided, and norms whose gradients nobody sums end the cell."""
    cells = {"stage_lost": "megatron+acc2-cpu_x2", "whole_optimizer": "megatron_distributed+dp2-cpu_x2"}
    cell = cells.get(fault, "megatron+tp2+sp-cpu_x2")
    broken = measure(f"gpt2_tiny_l4-{cell}", named(f"layout_faults:megatron_{fault}"))

    assert broken.outcome == "failed"
    assert message in broken.failure.message


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("t5_tiny-megatron-cpu_x1", "t5_tiny is not a GPT"),
        ("gpt2_tiny-megatron+tp3-cpu_x3", "4 heads are not divisible by 3 tensor-parallel ranks: 1, 2, 4 fit"),
        ("gpt2_tiny-megatron-cpu_x3", "2 layers, which 3 stages cannot share"),
        ("gpt2_tiny_l4-megatron_interleaved-cpu_x1", "needs 2 ranks in the pipeline"),
        ("gpt2_tiny_l4-megatron_interleaved-cpu_x2", r"needs a multiple of as many micro-batches: \+acc2"),
        ("gpt2_tiny-megatron+sdpa-cpu_x1", "their own attention"),
        ("gpt2_tiny-megatron+sp-cpu_x1", "sp divides each sequence over tensor-parallel ranks: add tp2"),
        ("gpt2_tiny-megatron+tp2+sp-cpu_x2-s33", "33 tokens over 2 ranks, which leaves a rest"),
        ("llama_tiny-tp+sp-cpu_x2", "tp has no tensor-parallel ranks that divide sequences, which sp needs"),
        ("gpt2_tiny-megatron+adafactor-cpu_x1", "its own optimizer"),
    ],
)
def test_what_megatron_cannot_train_is_refused(catalog, cell, reason):
    """The sentence says what does not fit."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)


HANDLED = {"ckpt", "ckpt_selective", "nodrop", "tf32"}  # by Megatron's config, or by flags of torch


def test_what_changes_transformers_model_is_refused(catalog):
    """Megatron trains its own layers, so what a technique does to those of transformers would be lost."""
    engine = catalog.get("engine", "megatron")
    applied = {name for name, one in catalog.all("technique").items() if one.applies and not one.refused}

    assert applied - engine.refuses.keys() == HANDLED


def test_another_release_is_refused_on_a_cpu(monkeypatch):
    """Its calls to CUDA were not read."""
    monkeypatch.setattr(metadata, "version", lambda name: "0.17.0")

    with pytest.raises(Unsupported, match=r"megatron-core 0.17.0 cannot run on a CPU"):
        cpu.install(None)  # type: ignore[arg-type]
