"""FLOPs of a mixture of experts: counted by operators, and equal to the model's own formula."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.meters._formulas import grouped, grouped_backward, product
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings

MIXTRAL: Model = Catalog().get("model", "mixtral_tiny")
ONE_BY_ONE = dataclasses.replace(
    MIXTRAL, name="one_by_one", config={**MIXTRAL.config, "experts_implementation": "eager"}
)
Train = Callable[[str], Measurement]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """``train("mixtral_tiny-single-cpu_x1")`` trains the cell."""
    catalog = Catalog(extra_models=(ONE_BY_ONE,))
    with contextlib.closing(Runner(catalog, Settings(steps=1, warmup=0))) as runner:
        yield lambda cell: runner.measure(parse_cell(cell, catalog))


def test_a_grouped_product_is_the_products_of_its_groups() -> None:
    """10 rows of all groups, 16 inner features and 8 columns, in the four layouts of the operator."""
    whole = 2 * 10 * 16 * 8

    assert grouped((10, 16), (4, 16, 8), (4,)) == whole  # forward, and the gradient of the rows
    assert grouped((16, 10), (10, 8), (4,)) == whole  # the gradient of the weights
    assert grouped((4, 8, 16), (16, 10), (4,)) == whole  # the columns are divided
    assert grouped((4, 10, 16), (4, 16, 8)) == 4 * whole  # every group has its own rows
    assert grouped_backward((10, 16), (4, 16, 8), (4,), (10, 8)) == 2 * whole


def test_a_product_that_is_added_in_place_is_a_product() -> None:
    """Of one matrix, and of each of a batch; what it is added to has no part in it."""
    assert product((10, 8), (10, 16), (16, 8)) == 2 * 10 * 16 * 8
    assert product((4, 10, 8), (4, 10, 16), (4, 16, 8)) == 4 * 2 * 10 * 16 * 8


def test_model_flops_are_those_of_the_model_s_formula(train: Train) -> None:
    """Six for each weight and position, of experts those that are chosen, and the products of attention. Embeddings
    multiply nothing.
    """
    config, work = MIXTRAL.config, MIXTRAL.workload
    hidden, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    keys = hidden * config["num_key_value_heads"] // heads
    attention = 2 * hidden * hidden + 2 * hidden * keys
    chosen = config["num_experts_per_tok"] * 3 * hidden * config["intermediate_size"]
    router = hidden * config["num_local_experts"]
    weights = layers * (attention + router + chosen) + hidden * config["vocab_size"]
    positions = work.micro_batch * work.sequence_length
    scores = 3 * layers * 2 * 2 * work.micro_batch * work.sequence_length**2 * hidden

    found = train("mixtral_tiny-single-cpu_x1")

    assert found.readings["model_flop"].value == 6 * weights * positions + scores
    assert not found.readings["unknown_operators"].value


def test_one_product_of_all_experts_is_as_many_flops_as_one_for_each(train: Train) -> None:
    """torch's own counter has none of the first, a third to a half of the step."""
    together, apart = train("mixtral_tiny-single-cpu_x1"), train("one_by_one-single-cpu_x1")

    assert together.readings["hardware_flop"].value == apart.readings["hardware_flop"].value
