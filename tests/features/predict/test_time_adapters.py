"""What fine-tuning adds to the closed form: adapters, quantized bases, packed documents; and who exchanges what."""

import dataclasses
from typing import Any

import pytest

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.features.predict.plan.layout_memory import state_bytes
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time.adapters import adapter_parameters
from perfsuite.features.predict.time.attention import FULL, KERNELS
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.held import trained
from perfsuite.features.predict.time.regimes import unseen
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.software import software
from perfsuite.features.predict.time.step import step

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
    "option", ["lora=0", "lora=x", "base=int3", "base=nf4", "documents=0", "documents=9999", "context=all"]
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
