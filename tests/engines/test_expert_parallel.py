"""Expert parallelism: whole experts on each rank, the tokens of all ranks, and the same training as on one."""

import pytest
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

BOUND = 1e-4
MIXTRAL = "mixtral_tiny-ep-cpu_x2"
FAMILIES = ("mixtral_tiny", "qwen3_moe_tiny", "deepseek_v3_tiny")


@pytest.mark.parametrize("model", slow_unless("mixtral_tiny".__eq__, FAMILIES))
def test_two_ranks_train_as_one(measure, model):
    """Loss, gradient norm and update, on the same global batch."""
    single, parallel = measure(f"{model}-single+acc2-cpu_x1"), measure(f"{model}-ep-cpu_x2")

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND
    assert parallel.readings["update_error"].value < 1e-5


@pytest.mark.slow
def test_groups_of_ranks_train_as_one(measure):
    """Two replicas of two ranks, and two accumulated micro-batches."""
    single = measure("mixtral_tiny-single+acc4-cpu_x1-b1")
    parallel = measure("mixtral_tiny-ep+dp2-cpu_x4-b1")

    assert worst(single, parallel, "loss") < BOUND
    assert parallel.readings["update_error"].value < 1e-5


def test_each_rank_holds_its_experts(measure):
    """The evidence of rank 0, the memory of both, and messages that bring tokens there and back."""
    here, whole = measure(MIXTRAL), measure("mixtral_tiny-ddp-cpu_x2")
    experts, all_of_it = 2 * 4 * 3 * 64 * 64 * 4, 189_248 * 4  # bytes in two layers

    assert here.engine["experts"] == "0 to 1 of 4"
    assert here.readings["parameters_bytes"].value == whole.readings["parameters_bytes"].value - experts // 2
    assert whole.readings["parameters_bytes"].value >= all_of_it
    assert here.readings["communication_bytes"].parts["all_to_all"] > 0
    assert here.readings["expert_load"].parts == whole.readings["expert_load"].parts


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("experts_keep_their_tokens", "must send its tokens to the experts' ranks"),
        ("experts_whole", "down_proj must be divided over 2 ranks, but this rank has all of it"),
        ("no_average", "gradients are not reduced over the ranks"),
    ],
)
def test_what_is_no_expert_parallelism_ends_the_cell(measure, fault, says):
    """A layer without its dispatch or with all experts is another engine; other parameters must stay equal."""
    broken = measure(MIXTRAL, f"layout_faults:{fault}")

    assert broken.outcome == "failed"
    assert says in broken.failure.message


def test_an_expert_s_gradient_is_a_mean(measure):
    """Replicas of an expert do not exist, so only the update shows it."""
    update = measure(MIXTRAL, "layout_faults:experts_sum_gradients").readings["update_error"]

    assert update.value > 1e-2
    assert all("experts" in name for name in update.suspects)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("llama_tiny-ep-cpu_x2", "llama_tiny has no experts that transformers has a plan for"),
        ("mixtral_tiny-ep-cpu_x8", "mixtral_tiny's 4 experts are not divisible by 8 ranks"),
    ],
)
def test_a_model_without_as_many_experts_is_refused(catalog, cell, says):
    """Before anything is started."""
    with pytest.raises(Refused, match=says):
        parse_cell(cell, catalog)
