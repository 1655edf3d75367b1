"""What fine-tuning adds to the closed form: adapters, quantized bases, packed documents; and who exchanges what."""

import dataclasses
from typing import Any

import pytest

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.features.predict.plan.layout_memory import state_bytes
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time import adapters, products
from perfsuite.features.predict.time.adapters import adapter_parameters
from perfsuite.features.predict.time.attention import FULL, KERNELS
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.held import trained
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.regimes import unseen
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.software import software
from perfsuite.features.predict.time.step import step
from perfsuite.features.predict.time.work import Rates

CATALOG = Catalog(())
LLAMA = planned("llama_8b", CATALOG, {}).shape
H100 = CATALOG.get("device", "h100")
PLAIN = Setup(sequence=4096)


def seconds(setup):
    """The predicted step of Llama 3 8B on one node of H100."""
    return step(LLAMA, setup, machine_of(H100), constants_of(H100, "automodel")).total


def test_frozen_weights_have_no_gradient():
    """So a step needs two thirds of the products, and a little for the adapters."""
    whole, adapted = seconds(PLAIN), seconds(dataclasses.replace(PLAIN, adapter=16))

    assert 0.6 * whole < adapted < 0.85 * whole


def test_the_adapters_of_llama_are_peft_s():
    """Rank 16 beside all seven matrices: 41,943,040 parameters, as peft prints for Llama 3 8B."""
    assert LLAMA.layers * adapter_parameters(LLAMA.stacks[0], 16) == 41_943_040
    assert trained(LLAMA, dataclasses.replace(PLAIN, adapter=16))[0] == 41_943_040


def test_fewer_adapters_add_less():
    """Beside queries, keys and values alone, as the recipes of Llama 3 70B have them: 9,437,184 parameters for 8B."""
    whole, few = (dataclasses.replace(PLAIN, adapter=16, adapted=one) for one in ("all", "qkv"))

    assert trained(LLAMA, few)[0] == 9_437_184
    assert seconds(few) < 0.97 * seconds(whole)
    fields = software("automodel").setup(H100, {"lora": "16:qkv"}, layout=Layout(), sequence=4096)
    assert (fields.adapter, fields.adapted) == (16, "qkv")


def layer_products(setup):
    """Seconds of a layer's products of 4,096 tokens, forward and backward, and the device's bytes per second."""
    rates = Rates.of(machine_of(H100), constants_of(H100, "automodel"))
    return products.products(LLAMA.stacks[0], setup, rates, 4096, 1), rates.memory


def test_what_adapters_give_is_added(monkeypatch):
    """The sums of llama_8b: 43,008 elements of outputs and 38,912 of inputs a token and layer, six bytes each."""
    setup = dataclasses.replace(PLAIN, adapter=16, eager=("llama", "half"))
    added, memory = layer_products(setup)
    monkeypatch.setattr(adapters, "SUM", 0.0)

    sums = [one - other for one, other in zip(added, layer_products(setup)[0], strict=True)]
    assert sums == [pytest.approx(6 * 4096 * width / memory) for width in (43_008, 38_912)]


def test_frozen_weights_need_no_columns(monkeypatch):
    """Only products for gradients of weights read an operand by columns: each input is written once less."""
    setup = dataclasses.replace(PLAIN, precision="fp8", adapter=16)
    once, memory = layer_products(setup)
    monkeypatch.setitem(PRECISIONS, "fp8", dataclasses.replace(PRECISIONS["fp8"], columns=0.0))

    inputs = 2 * 4096 + 4096 + 14_336  # joined: one product makes queries, keys and values, one gate and inner
    assert layer_products(setup)[0][0] - once[0] == pytest.approx(4096 * inputs / memory)


def test_a_quantized_base_is_slower_and_smaller():
    """Each pass brings it into half precision. Its tables stay in half precision."""
    half, small = (dataclasses.replace(PLAIN, adapter=16, base=one) for one in ("bf16", "nf4"))

    assert seconds(small) > seconds(half)
    tables = 2 * LLAMA.vocabulary * LLAMA.hidden
    saved = state_bytes(LLAMA, half) - state_bytes(LLAMA, small)
    layer = 2 * max(stack.dense_parameters for stack in LLAMA.stacks)  # is there whole when it is used
    assert saved == pytest.approx((2 - 0.5 - 1 / 64) * (LLAMA.parameters - tables) - layer, rel=1e-6)


def test_packed_documents_attend_to_themselves():
    """Short ones leave products and pointwise kernels."""
    packed = dataclasses.replace(PLAIN, documents=256)

    assert seconds(packed) < seconds(PLAIN)
    assert seconds(dataclasses.replace(PLAIN, documents=4096)) == seconds(PLAIN)


@pytest.mark.parametrize(
    "option",
    ["lora=0", "lora=x", "lora=8:gate", "base=int3", "base=nf4", "documents=0", "documents=9999", "context=all"],
)
def test_what_cannot_be_is_refused(option):
    """With the values that there are."""
    name, _, value = option.partition("=")
    with pytest.raises(UsageError, match=name):
        software("automodel").setup(H100, {name: value}, layout=Layout(), sequence=4096)


def test_ranks_may_exchange_heads():
    """Queries and outputs too, with nothing beside: more than keys and values that pass during attention."""
    pairs = dataclasses.replace(PLAIN, sequence=32768, context=4)

    assert seconds(dataclasses.replace(pairs, context_exchange="heads")) > seconds(pairs)
    assert software("deepspeed").does["context_exchange"] == "heads"


def test_no_fitted_row_trains_so():
    """Adapters, documents, offload and exchanged heads have the interval of what is new."""
    ways: list[dict[str, Any]] = [
        {"adapter": 8},
        {"documents": 100},
        {"offload": True},
        {"context": 2, "context_exchange": "heads"},
    ]

    assert not unseen(PLAIN)
    assert all(unseen(dataclasses.replace(PLAIN, **one)) for one in ways)


def test_attention_needs_tokens_and_heads():
    """FlashAttention-2 reaches half of its rate on 500 tokens, and nine tenths of it with heads of 64."""
    kernel = KERNELS["flash"]

    assert kernel.reached(500, FULL) == 0.5
    assert kernel.reached(1e9, 64) == pytest.approx(0.9)
    assert kernel.reached(1e9, 256) == pytest.approx(1.0)
