"""What experts cost beside their products: launches, gradients that are added apart, narrow inputs, and their nodes."""

import dataclasses

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.experts import bias_bytes, bias_kernels, launch_gap
from perfsuite.features.predict.time.layer import Layer
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape_config import shape_of_config
from perfsuite.features.predict.time.work import Rates

CATALOG = Catalog(())
QWEN = planned("qwen3_30b_a3b", CATALOG, {}).shape.stacks[-1]
B200 = CATALOG.get("device", "b200")
CONSTANTS = constants_of(B200, "megatron_core")
SETUP = Setup(sequence=4096, experts=8, parameter_bytes_moved=0.0)


def test_each_own_expert_waits_for_its_launch():
    """128 experts on 8 ranks are 16 each; a graph launches all at once."""
    assert launch_gap(QWEN, SETUP, CONSTANTS) == 16 * CONSTANTS.launch_expert
    assert launch_gap(QWEN, dataclasses.replace(SETUP, graphs="all"), CONSTANTS) == 0
    assert launch_gap(dataclasses.replace(QWEN, experts=None), SETUP, CONSTANTS) == 0


@pytest.mark.parametrize(("gradient_bytes", "moved"), [(4, 10.0), (2, 6.0)])
def test_gradients_of_experts_are_added_apart(gradient_bytes, moved):
    """The new one is read, and the sum is read and written, where other products add to it themselves."""
    rates = Rates.of(machine_of(B200), CONSTANTS)
    setup = dataclasses.replace(SETUP, gradient_bytes=gradient_bytes)
    own = QWEN.expert_parameters / 8

    assert Layer(QWEN, setup, rates, CONSTANTS)._added() == pytest.approx(moved * own / rates.memory)
    apart = dataclasses.replace(setup, parameter_bytes_moved=None)  # then collect() counts them
    assert Layer(QWEN, apart, rates, CONSTANTS)._added() == 0


def test_experts_may_read_fewer_features():
    """Nemotron 3 Super's: 1,024 of 4,096 features, so a quarter of the bytes is sent."""
    stack = planned("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", CATALOG, {}).shape.stacks[-1]

    assert (stack.hidden, stack.expert_hidden, stack.experts.width) == (4096, 1024, 2688)
    assert stack.blocks == 1  # experts alone: attention and Mamba are layers of their own


def test_one_group_of_experts_is_no_limit_of_nodes():
    """DeepSeek-V3 chooses 4 of 8 groups; Kimi K2 has one group, which is on every node."""
    groups = {"n_group": 8, "topk_group": 4}
    config = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    }  # fmt: skip

    assert shape_of_config(config | groups).stacks[-1].experts.nodes == 4
    assert shape_of_config(config | {"n_group": 1, "topk_group": 1}).stacks[-1].experts.nodes == 0


def test_biases_of_experts_are_added_apart():
    """GPT-OSS's, expert by expert and in fp32: 64 bytes per element of what experts give, and 12 kernels of each."""
    stack = planned("openai/gpt-oss-120b", CATALOG, {}).shape.stacks[-1]
    assert stack.experts is not None
    rows = 4096 * stack.experts.chosen
    plain = dataclasses.replace(stack, experts=dataclasses.replace(stack.experts, biased=False))
    rates = Rates.of(machine_of(B200), CONSTANTS)

    assert sum(bias_bytes(stack, SETUP, 4096, 1)) == 64 * rows * 2880
    assert bias_kernels(stack, SETUP) == 12 * 16
    assert bias_kernels(stack, dataclasses.replace(SETUP, graphs="all")) == 0
    assert sum(bias_bytes(plain, SETUP, 4096, 1)) == bias_kernels(plain, SETUP) == 0
    whole, less = (Layer(one, SETUP, rates, CONSTANTS).work() for one in (stack, plain))
    more = 64 * rows * 2880 / rates.memory + 12 * 16 * CONSTANTS.gap
    assert whole.forward + whole.backward - less.forward - less.backward == pytest.approx(more)
