"""Every technique trains what it says: the same numbers on every engine, the memory of its theory, or a refusal."""

import functools
import importlib.util
import math
import sys
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
from parity import difference_of
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.errors import Refused, Unsupported
from perfsuite.techniques.attention import choose

CATALOG = Catalog()
PARAMETERS = 141_056  # gpt2_tiny's
BOUND = 1e-4  # between engines, and between two kernels of one formula
# Relative to fp32, of the loss over eight steps: half a unit in the last place of the mantissa, since the loss of a
# model that is initialized at random is a mean over hundreds of labels of logits that are nearly zero.
PRECISIONS = {"bf16": 2**-9, "pure_bf16": 2**-9, "fp16": 2**-12}
OPTIMIZERS = ("adamw_loop", "adamw_foreach", "adamw_fused", "cpu_adam", "adamw8bit", "adafactor", "sgd", "sgd_momentum")
SAME_AS_ADAMW = ("adamw_loop", "adamw_foreach", "adamw_fused", "cpu_adam")
OTHERS = ("eager", "sdpa", "ckpt_selective", "lora", "prune", "prune_structured", "clip")
# Gradients of ranks are rounded to bf16 before they are averaged; 8-bit blocks are cut elsewhere in a flat shard.
BETWEEN_ENGINES = {"pure_bf16": 2**-9, "bf16": 2**-9}


def _measure(measure, cell_id):
    cell = parse_cell(cell_id, CATALOG)
    missing = [name for name in cell.strategy.packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    measurement = measure(cell_id)
    assert measurement.outcome == "fits", measurement.failure
    return measurement.readings


def _single(measure, techniques=""):
    return _measure(measure, f"gpt2_tiny-single{techniques}+nodrop-cpu_x1-b4")


def _engines(technique):
    """All that there are but for ZeRO's first stages, which step as its third does."""
    return ["ddp"] if technique == "adafactor" else ["ddp", "zero3"]


@pytest.mark.parametrize(
    ("technique", "engine"),
    slow_unless(
        {
            ("prune", "ddp"),
            ("lora", "ddp"),
        }.__contains__,
        [(technique, engine) for technique in (*OPTIMIZERS, *OTHERS, "pure_bf16") for engine in _engines(technique)],
    ),
)
def test_technique_means_the_same_on_every_engine(measure, technique, engine):
    """Two ranks with a micro-batch of two take the same steps as one rank with four, whatever the technique."""
    single = _single(measure, f"+{technique}")
    parallel = _measure(measure, f"gpt2_tiny-{engine}+{technique}+nodrop-cpu_x2")

    assert difference_of(single, parallel) < BETWEEN_ENGINES.get(technique, BOUND)


@pytest.mark.parametrize(("precision", "bound"), PRECISIONS.items())
def test_low_precision_stays_near_fp32(measure, precision, bound):
    """The losses are fp32's but for the rounding, and they are not fp32's."""
    difference = difference_of(_single(measure), _single(measure, f"+{precision}"))

    assert 0 < difference < bound


@pytest.mark.parametrize("optimizer", slow_unless("cpu_adam".__ne__, SAME_AS_ADAMW))  # it compiles for minutes
def test_kernels_of_adamw_agree(measure, optimizer):
    """A loop, foreach, fused and DeepSpeed's kernel are one formula."""
    assert difference_of(_single(measure), _single(measure, f"+{optimizer}")) < BOUND


@pytest.mark.parametrize("optimizer", ["adafactor", "sgd", "sgd_momentum"])
def test_other_optimizers_are_others(measure, optimizer):
    """The losses part from AdamW's after the first step."""
    first, *rest = _single(measure)["loss"].samples
    other_first, *other_rest = _single(measure, f"+{optimizer}")["loss"].samples

    assert first == other_first
    assert rest != other_rest


@pytest.mark.parametrize("technique", ["eager", "ckpt_selective", "adamw8bit"])
def test_technique_hardly_changes_the_losses(measure, technique):
    """Another order of the sums, or a state of 8 bits with a scale per block, is seen in the fourth digit at most."""
    assert difference_of(_single(measure), _single(measure, f"+{technique}")) < BOUND


def test_pruning_and_adapters_change_what_is_learnt(measure):
    """A pruned model begins elsewhere; adapters begin where the model is and then go another way."""
    plain = _single(measure)["loss"].samples

    assert _single(measure, "+prune")["loss"].samples[0] != plain[0]
    assert _single(measure, "+lora")["loss"].samples[0] == pytest.approx(plain[0], rel=1e-6)
    assert _single(measure, "+lora")["loss"].samples[1:] != plain[1:]


def _shapes():
    """The shapes of gpt2_tiny's parameters (vocabulary 512, 128 positions, width 64, two layers)."""
    h = 64
    layer = [(h, 3 * h), (3 * h,), (h, h), (h,), (h, 4 * h), (4 * h,), (4 * h, h), (h,), (h,), (h,), (h,), (h,)]
    return [(512, h), (128, h), *layer, *layer, (h,), (h,)]


def _eight_bits(size, block=256, code_books=0):
    """bitsandbytes and torchao quantize from 4,096 elements on: a byte each, and 4 bytes per block."""
    return size + 4 * (size // block) + code_books if size >= 4096 else 4 * size


STATES = {  # bytes of optimizer state by theory, of all parameters
    "adamw": lambda sizes: sum(8 * size + 4 for size in sizes),  # two moments and a count of steps
    "cpu_adam": lambda sizes: sum(8 * size for size in sizes),  # counts in Python
    "sgd": lambda sizes: 0,
    "sgd_momentum": lambda sizes: sum(4 * size for size in sizes),
    # two code books of 256 fp32 values are shared by all
    "adamw8bit": lambda sizes: sum(2 * _eight_bits(size) for size in sizes) + 2 * 256 * 4,
}


def test_the_shapes_are_gpt2_tinys():
    """What the formulas below are given is the model."""
    assert sum(math.prod(shape) for shape in _shapes()) == PARAMETERS


@pytest.mark.parametrize("optimizer", slow_unless("cpu_adam".__ne__, STATES))
def test_optimizer_state_is_its_theory(measure, optimizer):
    """To the byte."""
    held = _single(measure, f"+{optimizer}")["optimizer_state_bytes"].value

    assert held == STATES[optimizer]([math.prod(shape) for shape in _shapes()])


def test_adafactor_keeps_a_row_and_a_column(measure):
    """A matrix's second moment takes a row and a column of fp32, a vector's is whole; the rest is a scalar each."""
    factored = sum(4 * sum(shape) for shape in _shapes())  # a vector's shape sums to its size
    held = _single(measure, "+adafactor")["optimizer_state_bytes"].value

    assert factored <= held <= factored + 8 * len(_shapes())


def test_pure_bf16_halves_everything_it_holds(measure):
    """Parameters, gradients and moments take two bytes instead of four."""
    full, half = _single(measure), _single(measure, "+pure_bf16")
    counts = 4 * len(_shapes())  # the counts of steps stay fp32

    assert half["parameters_bytes"].value == full["parameters_bytes"].value / 2
    assert half["gradients_bytes"].value == full["gradients_bytes"].value / 2
    assert half["optimizer_state_bytes"].value - counts == (full["optimizer_state_bytes"].value - counts) / 2


@pytest.mark.parametrize("stage", slow_unless((3).__eq__, [1, 3]))
def test_pure_bf16_shards_bf16_in_zero(measure, stage):
    """DeepSpeed keeps no fp32 master parameters then, and its moments are of two bytes."""
    readings = _measure(measure, f"gpt2_tiny-zero{stage}+pure_bf16+nodrop-cpu_x2")

    assert 0 <= readings["optimizer_state_bytes"].value - 2 * 2 * PARAMETERS / 2 < 1024


def test_checkpointing_selectively_is_between(measure):
    """Activations lie between those of full checkpointing and of none; nothing that has FLOPs is computed again."""
    none, selective, full = (_single(measure, technique) for technique in ("", "+ckpt_selective", "+ckpt"))
    kept = [readings["peak_memory_bytes"].parts["activations"] for readings in (none, selective, full)]
    flop = [readings["hardware_flop"].value for readings in (none, selective, full)]

    assert kept[0] > kept[1] > kept[2]
    assert flop[0] == flop[1] < flop[2]


def test_fused_attention_keeps_no_scores(measure):
    """Without dropout sdpa runs the fused kernel: it keeps its output and a mask, but no layer's matrix of scores."""
    eager, fused = (
        _single(measure, f"+{name}")["peak_memory_bytes"].parts["activations"] for name in ("eager", "sdpa")
    )
    scores = 4 * 4 * 4 * 64 * 64  # of one of the two layers: bytes of fp32, samples, heads, length squared

    assert eager - fused > scores


@pytest.mark.parametrize("technique", ["prune", "prune_structured"])
def test_pruning_adds_a_mask(measure, technique):
    """Each linear weight, the tied head's included, is kept whole with a mask of its size."""
    linear = sum(math.prod(shape) for shape in _shapes() if len(shape) == 2) - 128 * 64  # but the positions
    pruned = _single(measure, f"+{technique}")

    assert pruned["parameters_bytes"].value == 4 * (PARAMETERS + linear)
    assert pruned["peak_memory_bytes"].value > _single(measure)["peak_memory_bytes"].value
    assert pruned["hardware_flop"].value == _single(measure)["hardware_flop"].value


def test_lora_trains_adapters_only(measure):
    """Gradients and moments are those of two matrices of rank 8 per layer; the frozen weights' FLOPs are saved."""
    adapters = 2 * 8 * (64 + 3 * 64)  # layers, rank, inputs and outputs of the projection c_attn
    plain, lora = _single(measure), _single(measure, "+lora")
    attention_again = plain["hardware_flop"].value - plain["model_flop"].value  # by the fused kernel's backward

    assert lora["parameters_bytes"].value == 4 * (PARAMETERS + adapters)
    assert lora["gradients_bytes"].value == 4 * adapters
    assert lora["optimizer_state_bytes"].value == 8 * adapters + 4 * 4
    assert 2 / 3 < lora["model_flop"].value / plain["model_flop"].value < 3 / 4
    assert lora["hardware_flop"].value - lora["model_flop"].value == attention_again


def test_lora_trains_the_new_head_of_a_classifier(measure):
    """peft trains the score layer in addition to the adapters."""
    readings = _measure(measure, "bloom_tiny_cls-single+lora-cpu_x1")
    adapters = 2 * 8 * (64 + 3 * 64)

    assert readings["gradients_bytes"].value == 4 * (adapters + 2 * 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", ["gpt2_tiny-single+pure_bf16+cpu_adam-cpu_x1", "gpt2_tiny-zero2+pure_bf16+cpu_adam-cpu_x2"]
)
def test_pure_bf16_keeps_no_state_of_deepspeeds_adam_in_fp32(measure, cell):
    """Two moments of two bytes for each parameter, in equal parts on all ranks."""
    found = _measure(measure, cell)["optimizer_state_bytes"]

    assert found.value * len(found.ranks) == 2 * 2 * PARAMETERS


@pytest.fixture(scope="module")
def losses(runner, catalog):
    """The readings of a strategy with large steps; each is trained once."""

    def losses(strategy, hardware):
        cell = parse_cell(f"gpt2_tiny-{strategy}+nodrop-{hardware}", catalog)
        measurement = runner.measure(replace(cell, faults=("faults:large_steps",)))
        assert measurement.outcome == "fits", measurement.failure
        return measurement.readings

    return functools.cache(losses)


@pytest.mark.parametrize("engine", slow_unless({"single"}.__contains__, ["single", "zero1", "zero2", "zero3"]))
def test_clipping_bounds_the_step(losses, engine):
    """With steps large enough to be seen, clipped SGD goes the way of single's, and the norm told is the unclipped."""
    ranks = "cpu_x1-b4" if engine == "single" else "cpu_x2"
    clipped, unclipped = losses(f"{engine}+sgd+clip", ranks), losses("single+sgd", "cpu_x1-b4")

    assert clipped["gradient_norm"].samples[0] > 1.2
    assert clipped["gradient_norm"].samples[0] == pytest.approx(unclipped["gradient_norm"].samples[0], rel=BOUND)
    assert difference_of(losses("single+sgd+clip", "cpu_x1-b4"), clipped) < 1e-5
    assert difference_of(unclipped, clipped) > 5e-4


def test_around_is_around_every_forward(measure):
    """What a technique puts around a step sees every tensor that autograd keeps, and changes no number."""
    plain = measure("gpt2_tiny-zero2+nodrop-cpu_x2")
    offloaded = measure("gpt2_tiny-zero2+nodrop-cpu_x2", "keeps_copies")

    assert offloaded.outcome == "fits"
    assert offloaded.readings["loss"].samples == plain.readings["loss"].samples
    assert offloaded.readings["peak_memory_bytes"].value > plain.readings["peak_memory_bytes"].value


@pytest.mark.slow
def test_compiling_changes_no_number_and_no_timed_step(measure):
    """Fused kernels compute the same losses in less memory, and no timed step contains the compiler's seconds."""
    plain, compiled = (_measure(measure, f"gpt2_tiny-ddp{name}+nodrop-cpu_x2") for name in ("", "+compile"))
    times = compiled["step_time_seconds"].samples

    assert difference_of(plain, compiled) < BOUND
    assert compiled["peak_memory_bytes"].value < plain["peak_memory_bytes"].value
    assert max(times) < 20 * min(times)


def test_torchao_quantizes_its_state(measure):
    """A byte per element, 4 bytes per block and a code book of 256 fp32 values for each moment."""
    sizes = [math.prod(shape) for shape in _shapes()]
    theory = sum(2 * _eight_bits(size, code_books=1024) + 4 for size in sizes)  # and a count of steps
    held = _single(measure, "+adamw8bit_ao")["optimizer_state_bytes"].value

    assert held == theory


REFUSALS = [
    ("gpt2_tiny-single+adamw_apex-cpu_x1", "not on PyPI.*adamw_fused"),
    ("gpt2_tiny-zero1+adafactor-cpu_x2", "pieces of parameters.*rows and columns"),
    ("gpt2_tiny-zero3+adamw8bit_ao-cpu_x2", "multiple of its block"),
    ("gpt2_tiny-zero3+adamw4bit_ao-cpu_x2", "multiple of its block"),
    ("gpt2_tiny-single+cpu_adam-h100_x1", "steps on the host"),
    ("gpt2_tiny-single+tf32-cpu_x1", "CPU has no TF32"),
    ("gpt2_tiny-single+tf32-v100_32g_x1", "v100_32g has no TF32"),
    ("gpt2_tiny-ddp+ckpt_offload-cpu_x2", "they are already there"),
    ("gpt2_tiny-single+flash-cpu_x1", "on a CPU use sdpa"),
    ("bloom_tiny-single+sdpa-cpu_x1", "no sdpa attention for bloom: it has eager"),
    ("t5_tiny-single+flash-cpu_x1", "no flash_attention_2 attention for t5: it has eager, sdpa"),
]


@pytest.mark.parametrize(("cell", "reason"), REFUSALS, ids=[cell for cell, _ in REFUSALS])
def test_refusal_says_why(cell, reason):
    """What cannot be is refused before anything runs, with the reason."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, CATALOG)


def test_optimizers_exclude_each_other():
    """A strategy has one optimizer."""
    with pytest.raises(Refused, match="two techniques for optimizer"):
        parse_strategy("single+sgd+adafactor", CATALOG)


def test_attention_that_a_release_cannot_choose_is_refused(monkeypatch):
    """One sentence names the implementation, the release and the first that has the method."""
    old = SimpleNamespace(PreTrainedModel=type("PreTrainedModel", (), {}))
    monkeypatch.setitem(sys.modules, "transformers", old)
    monkeypatch.setattr(metadata, "version", lambda name: "4.48.0")

    unused: Any = None
    with pytest.raises(Unsupported, match=r"eager cannot run on transformers 4\.48\.0, .*: 4\.54\.0 is the first"):
        choose(unused, old.PreTrainedModel(), implementation="eager")
