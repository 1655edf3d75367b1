"""Inference cells: what runs is the model without training, and what it costs is the forward's."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.errors import Refused

TINY = ["t5_tiny", "gpt2_tiny", "llama_tiny", "bloom_tiny", "bloom_tiny_cls"]
WRITERS = TINY[:-1]
TRAINING_ONLY = {"gradient_norm", "gradients_bytes", "optimizer_state_bytes", "master_parameters_bytes"}


@pytest.mark.parametrize("model", slow_unless({"gpt2_tiny", "bloom_tiny_cls"}.__contains__, TINY))
def test_loss_is_that_of_training_before_its_first_update(measure, model):
    """forward's first loss is the first loss of single without dropout: the same weights, batch and arithmetic."""
    trained = measure(f"{model}-single+nodrop-cpu_x1").readings["loss"].samples
    inferred = measure(f"{model}-forward-cpu_x1").readings["loss"].samples

    assert inferred[0] == pytest.approx(trained[0], rel=1e-6)


def test_two_ranks_share_the_global_batch(measure):
    """Two ranks with a micro-batch of two have the loss of one rank with four."""
    one = measure("gpt2_tiny-forward-cpu_x1-b4").readings["loss"].samples
    two = measure("gpt2_tiny-forward-cpu_x2").readings["loss"].samples

    assert two == pytest.approx(one, rel=1e-4)


def test_forward_is_a_third_of_training(measure):
    """A backward has twice the FLOPs of a forward, and inference has none: counted and executed."""
    trained = measure("gpt2_tiny-single+nodrop-cpu_x1").readings["model_flop"].value
    inferred = measure("gpt2_tiny-forward-cpu_x1").readings

    assert inferred["model_flop"].value * 3 == trained
    assert inferred["hardware_flop"].value == inferred["model_flop"].value


def test_nothing_is_kept_for_a_backward(measure):
    """At its peak a forward holds weights, batch and temporaries, and no activation, gradient or optimizer state."""
    parts = measure("gpt2_tiny-forward-cpu_x1").readings["peak_memory_bytes"].parts

    assert set(parts) == {"parameters", "batch", "temporaries"}


@pytest.mark.parametrize("engine", ["forward", "generate"])
def test_training_metrics_do_not_exist(measure, catalog, engine):
    """Gradient norm, gradients, optimizer state and master parameters are neither defined nor measured."""
    defined = {metric.name for metric in catalog.metrics("inference")}

    assert not TRAINING_ONLY & defined
    assert not TRAINING_ONLY & measure(f"gpt2_tiny-{engine}-cpu_x1").readings.keys()


@pytest.mark.parametrize("model", slow_unless("t5_tiny".__eq__, WRITERS))
def test_number_of_new_tokens(measure, model):
    """Every sample gets as many tokens as the workload says: T5 its target, the others half of their sequence."""
    measurement = measure(f"{model}-generate-cpu_x1")

    assert measurement.engine["new_tokens"] == 32
    assert measurement.readings["new_tokens"].value == 2 * 32


def test_cache_saves_the_prompt(measure):
    """With the cache no position is computed twice: less than the one forward that model FLOPs stand for."""
    readings = measure("gpt2_tiny-generate-cpu_x1").readings

    assert 0.5 * readings["model_flop"].value < readings["hardware_flop"].value <= readings["model_flop"].value


def test_generated_text_repeats_itself(measure, runner, catalog):
    """The likelihood of the generated tokens, which is held as the loss, is the same in every run."""
    first = measure("gpt2_tiny-generate-cpu_x1").readings["loss"]
    again = runner.measure(parse_cell("gpt2_tiny-generate-cpu_x1", catalog)).readings["loss"]

    assert again.samples == first.samples


def test_other_text_has_another_loss(measure):
    """Prompts whose padding is not masked are continued otherwise, and that is ten times the loss's bound and more."""
    right = measure("gpt2_tiny-generate-cpu_x1").readings["loss"].samples
    wrong = measure("gpt2_tiny-generate-cpu_x1", "padding_unmasked").readings["loss"].samples

    assert max(abs(a - b) / a for a, b in zip(right, wrong, strict=True)) > 1e-3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("training_mode", "must be in eval mode"),
        ("gradients_on", "must record no graph"),
        ("no_cache", "generate's cache"),
        ("ends_early", "must make 32 tokens"),
    ],
)
def test_wrong_inference_is_red(measure, fault, message):
    """Training mode, a recorded graph, a missing cache and a short text each end the cell."""
    engine = "forward" if fault in ("training_mode", "gradients_on") else "generate"
    measurement = measure(f"gpt2_tiny-{engine}-cpu_x1", fault)

    assert measurement.outcome == "failed"
    assert message in measurement.failure.message


@pytest.mark.parametrize("precision", slow_unless("bf16".__eq__, ["bf16", "fp16"]))
@pytest.mark.parametrize("engine", ["forward", "generate"])
def test_low_precision_is_near(measure, engine, precision):
    """Autocast changes the loss by rounding."""
    full = measure(f"t5_tiny-{engine}-cpu_x1").readings["loss"].samples[0]
    low = measure(f"t5_tiny-{engine}+{precision}-cpu_x1").readings["loss"].samples[0]

    assert low == pytest.approx(full, rel=0.1)
    assert low != full


def test_every_other_technique_is_refused(catalog):
    """What changes backward or optimizer is refused with that reason, whoever adds it."""
    for technique in catalog.all("technique").values():
        name = technique.name + ("2" if technique.parameter else "")
        if not technique.default and not technique.refused and "inference" not in technique.processes:
            with pytest.raises(Refused, match=r"inference has neither|in eval mode|lays out"):
                parse_strategy(f"forward+{name}", catalog)


def test_a_classifier_writes_nothing(catalog):
    """generate is refused for a model without a next token."""
    with pytest.raises(Refused, match="is a classifier"):
        parse_cell("bloom_tiny_cls-generate-cpu_x1", catalog)


@pytest.mark.parametrize("name", ["tensorrt", "lightseq", "tensor_parallel", "t5x"])
def test_names_that_people_know_are_refused(catalog, name):
    """An engine that cannot run says why, instead of being unknown."""
    with pytest.raises(Refused, match=f"{name} cannot run: .{{40}}"):
        parse_cell(f"t5_tiny-{name}-cpu_x1", catalog)
