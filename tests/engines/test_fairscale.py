"""fairscale's engines: sharded data parallelism is DDP number by number, and a reduction that fails is seen."""

import pytest
from parity import worst

PLAIN = "gpt2_tiny-ddp+nodrop-cpu_x2"
SHARDED = "gpt2_tiny-fairscale_sdp+nodrop-cpu_x2"


def test_sharded_data_parallel_equals_ddp(measure):
    """It divides the same sum by the same number of ranks, so that not one bit of a loss differs in any step."""
    plain, sharded = measure(PLAIN).readings, measure(SHARDED).readings

    assert len(plain["loss"].samples) >= 5
    assert sharded["loss"].samples == plain["loss"].samples


def test_its_default_buckets_train_wrongly(measure):
    """Why the engine switches them off: with fairscale's default size, gradients are freed under their bucket."""
    broken = measure(SHARDED, "layout_faults:default_buckets")

    assert broken.outcome == "failed" or worst(measure(PLAIN), broken, "gradient_norm") > 1e-2


def test_a_rank_has_half_of_the_states(measure):
    """OSS keeps AdamW's two moments where the parameter is stepped; FSDP keeps half of the parameters too."""
    plain, halved, sharded = (
        measure(cell).readings["peak_memory_bytes"].parts
        for cell in (PLAIN, SHARDED, "gpt2_tiny-fairscale_fsdp+nodrop-cpu_x2")
    )

    assert halved["optimizer_state"] == pytest.approx(plain["optimizer_state"] / 2, rel=0.01)
    assert halved["parameters"] == plain["parameters"]
    assert sharded["parameters"] == plain["parameters"] / 2


@pytest.mark.parametrize("engine", ["fairscale_sdp", "fairscale_fsdp"])
def test_a_reduction_left_out_is_seen(measure, engine):
    """Every rank would train on its own gradients."""
    broken = measure(f"gpt2_tiny-{engine}+nodrop-cpu_x2", "layout_faults:fairscale_no_reduction")

    assert broken.outcome == "failed" or worst(measure(PLAIN), broken, "gradient_norm") > 1e-2


def test_an_optimizer_that_is_not_sharded_is_seen(measure):
    """A rank that steps every parameter is no sharded data parallelism."""
    broken = measure(SHARDED, "layout_faults:fairscale_steps_all")

    assert broken.outcome == "failed"
    assert "fairscale_sdp must divide" in broken.failure.message
