"""Engines that are mathematically equal agree, number by number, on the same global batch."""

import pytest
from parity import worst
from sampling import slow_unless

FAMILIES = ["t5_tiny", "gpt2_tiny", "llama_tiny", "bloom_tiny"]
BOUND = 1e-4
ENGINES = ["ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "fairscale_sdp", "fairscale_fsdp"]
DECODERS = ["gpt2_tiny_l4", "llama_tiny_l4", "bloom_tiny"]
PIPELINES = ["pp_gpipe", "pp_1f1b", "pp_interleaved", "pp_zero_bubble", "pp_deepspeed"]


@pytest.mark.parametrize("engine", slow_unless({"ddp", "zero3", "fsdp2"}.__contains__, ENGINES))
@pytest.mark.parametrize("model", slow_unless("gpt2_tiny".__eq__, FAMILIES))
def test_engine_agrees_with_single(measure, model, engine):
    """Two ranks with a micro-batch of two take the same steps as one rank with four."""
    single = measure(f"{model}-single+nodrop-cpu_x1-b4")
    parallel = measure(f"{model}-{engine}+nodrop-cpu_x2")

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND


@pytest.mark.parametrize(
    ("model", "engine"),
    slow_unless(
        {("gpt2_tiny_l4", "pp_zero_bubble"), ("gpt2_tiny_l4", "pp_deepspeed")}.__contains__,
        [
            (model, engine)
            for model in DECODERS
            for engine in PIPELINES
            if model != "bloom_tiny" or engine not in ("pp_interleaved", "pp_zero_bubble")  # two layers
        ],
    ),
)
def test_pipeline_agrees_with_single(measure, model, engine):
    """Two stages with two micro-batches of two take the same steps as one rank with four."""
    single = measure(f"{model}-single+nodrop-cpu_x1-b4")
    parallel = measure(f"{model}-{engine}+acc2+nodrop-cpu_x2")

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND


@pytest.mark.parametrize(
    "parallel",
    slow_unless(
        {"pp_1f1b+dp2+acc2+nodrop-cpu_x4-b1"}.__contains__,
        [
            "pp_naive+nodrop-cpu_x2-b4",
            "pp_1f1b+acc4+nodrop-cpu_x4-b1",
            "pp_1f1b+dp2+acc2+nodrop-cpu_x4-b1",
            "pp_deepspeed+acc4+nodrop-cpu_x4-b1",
            "pp_deepspeed+dp2+acc2+nodrop-cpu_x4-b1",
            "fsdp1+dp2+nodrop-cpu_x4-b1",
            "fsdp2+dp2+nodrop-cpu_x4-b1",
            "fsdp2+tp2+nodrop-cpu_x4",
            "fsdp2+tp2+dp2+nodrop-cpu_x8-b1",
            "pp_1f1b+tp2+acc2+nodrop-cpu_x4",
            "pp_1f1b+tp2+dp2+acc2+nodrop-cpu_x8-b1",
            "pp_interleaved+tp2+acc2+nodrop-cpu_x4",
        ],
    ),
)
def test_layout_agrees_with_single(measure, parallel):
    """Ranks in any layout of one, two or three dimensions, and a pipeline without micro-batches, step as one rank."""
    single = measure("llama_tiny_l4-single+nodrop-cpu_x1-b4")
    other = measure(f"llama_tiny_l4-{parallel}")

    assert worst(single, other, "loss") < BOUND
    assert worst(single, other, "gradient_norm") < BOUND


@pytest.mark.parametrize("engine", slow_unless({"zero2"}.__contains__, ENGINES))
def test_accumulation_agrees_with_a_larger_micro_batch(measure, engine):
    """Two micro-batches of two make the same step as one of four, although padding differs between them."""
    single = measure("gpt2_tiny-single+nodrop-cpu_x1-b8")
    accumulated = measure(f"gpt2_tiny-{engine}+acc2+nodrop-cpu_x2")

    assert worst(single, accumulated, "loss") < BOUND
    assert worst(single, accumulated, "gradient_norm") < BOUND


def test_checkpointing_changes_no_number(measure):
    """Activation checkpointing computes the same loss and gradients."""
    plain = measure("gpt2_tiny-single+nodrop-cpu_x1-b4")
    checkpointed = measure("gpt2_tiny-single+ckpt+nodrop-cpu_x1-b4")

    assert worst(plain, checkpointed, "loss") < BOUND
    assert worst(plain, checkpointed, "gradient_norm") < BOUND


@pytest.mark.parametrize(("engine", "fault"), [("ddp", "sum_not_mean"), ("zero2", "zero_no_reduction")])
def test_broken_gradient_reduction_is_seen(measure, engine, fault):
    """A reduction that sums, or does nothing, shows in the gradient norm although every rank trains on happily."""
    single = measure("gpt2_tiny-single+nodrop-cpu_x1-b4")
    broken = measure(f"gpt2_tiny-{engine}+nodrop-cpu_x2", fault)

    assert broken.outcome == "failed" or worst(single, broken, "gradient_norm") > 100 * BOUND
