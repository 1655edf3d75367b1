"""Reinforcement learning in a script: its stages, and whether training and rollout agree."""

from pathlib import Path

import pytest
from small_scripts import measured

from perfsuite.catalog.registry import Catalog
from perfsuite.run.runner import Settings

pytest.importorskip("trl", reason="trl is not installed")

SCRIPT = (Path(__file__).parents[2] / "benchmarks/grpo.py").read_text()
SETTINGS = Settings(steps=3, warmup=1)
SLOW_ROLLOUT = """
generate = transformers.LlamaForCausalLM.generate
def generate_eight_times(self, *args, **kwargs):
    for _ in range(7):
        generate(self, *args, **kwargs)
    return generate(self, *args, **kwargs)
transformers.LlamaForCausalLM.generate = generate_eight_times
"""
OFF_BY_ONE = """
import trl.trainer.grpo_trainer as trainers
fuse = trainers.add_fused_lm_head
def fuse_shifted(model, *args, **kwargs):
    fuse(model, *args, **kwargs)
    forward = model.forward
    def shifted(*args, **kwargs):
        output = forward(*args, **kwargs)
        if getattr(output, "log_probs", None) is not None:
            output.log_probs = output.log_probs.roll(1, -1)
        return output
    model.forward = shifted
trainers.add_fused_lm_head = fuse_shifted
"""
KEEPS = """
import torch
kept = []
reward = even_tokens
def even_tokens(completion_ids, **_):
    kept.append(torch.zeros(256))
    return reward(completion_ids)
"""


def trained(folder, fault=""):
    before, main, after = SCRIPT.partition('if __name__ == "__main__":')
    done = measured(folder, before + fault + main + after, settings=SETTINGS)
    assert done.outcome == "fits", done.failure
    return done


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("grpo"))


def test_the_stages_of_a_step_have_times_and_operators(right):
    readings = right.readings
    stages = {name: readings[f"{name}_seconds"].value for name in ("rollout", "reward", "advantage", "update")}

    assert min(stages.values()) > 0
    assert sum(stages.values()) < readings["step_time_seconds"].value * 1.2
    assert {"rollout", "reward", "advantage", "forward", "backward"} <= readings["operators"].parts.keys()
    assert readings["new_tokens"].value == 8 * 16
    assert readings["unknown_operators"].value == 0  # trl's fused head adds products in place


def test_rollout_and_training_agree(right):
    """The same tokens have the same log-probabilities, although prompts are padded to the longest."""
    assert right.readings["rollout_gap"].value == 0


@pytest.mark.slow
def test_exact_numbers_repeat(right, tmp_path):
    again = trained(tmp_path).readings
    exact = [metric.name for metric in Catalog().metrics("script") if metric.hold == "exact" and metric.name in again]

    assert len(exact) > 10
    assert {name: again[name].value for name in exact} == {name: right.readings[name].value for name in exact}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """All faults at once: each has its own number."""
    return trained(tmp_path_factory.mktemp("wrong"), SLOW_ROLLOUT + OFF_BY_ONE + KEEPS).readings


def test_a_slower_rollout_is_in_its_stage(right, wrong):
    """Not in the update. Eight rollouts for one: noise of a few steps cannot hide that, each share being of one run."""
    assert wrong["new_tokens"].value == 8 * right.readings["new_tokens"].value
    shares = [one["rollout_seconds"].value / one["update_seconds"].value for one in (right.readings, wrong)]
    assert shares[1] > 2 * shares[0]
    assert wrong["operators"].parts["rollout"] > 7 * right.readings["operators"].parts["rollout"]
    assert wrong["operators"].parts["optimizer"] == right.readings["operators"].parts["optimizer"]


def test_log_probabilities_that_are_off_by_one_are_red(wrong):
    """By more than a nat, without any baseline."""
    assert wrong["rollout_gap"].value > 1


def test_a_tensor_that_is_kept_is_named_with_its_stage(wrong):
    assert wrong["grown_bytes"].value == 1024
    assert [name for name in wrong["grown_bytes"].suspects if "(reward)" in name]
