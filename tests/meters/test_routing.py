"""Routing of a mixture of experts: loads are counts of routes, and the routers' loss is what backward makes of it."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.meters.routing import idle, imbalance
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.run.runner import Runner, Settings

ALONE = "mixtral_tiny-single+acc2-cpu_x1"
Train = Callable[[str], Measurement]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """``train("mixtral_tiny-single-cpu_x1")`` trains the cell."""
    catalog = Catalog()
    with contextlib.closing(Runner(catalog, Settings(steps=1, warmup=1))) as runner:
        yield lambda cell: runner.measure(parse_cell(cell, catalog))


def loads(*rows: int) -> dict[str, Reading]:
    """Two layers of two experts."""
    names = ("layer 0, expert 0", "layer 0, expert 1", "layer 1, expert 0", "layer 1, expert 1")
    return {"expert_load": Reading(value=sum(rows), parts=dict(zip(names, rows, strict=True)))}


def test_imbalance_is_that_of_the_worst_layer() -> None:
    """The fullest expert over the mean of its layer."""
    assert imbalance(loads(4, 4, 4, 4), 1) == 1
    assert imbalance(loads(4, 4, 6, 2), 1) == 1.5
    assert imbalance(loads(8, 0, 6, 2), 1) == 2


def test_an_expert_of_one_layer_can_be_idle() -> None:
    """Although the expert of that number has tokens in another layer."""
    assert [idle(loads(*rows), 1) for rows in ((4, 4, 4, 4), (8, 0, 6, 2), (8, 0, 0, 8))] == [0, 1, 2]


def test_a_model_without_experts_has_no_routing() -> None:
    """None of the two is a number then."""
    assert imbalance({}, 1) is idle({}, 1) is None


@pytest.mark.parametrize(
    "cell",
    slow_unless(
        "mixtral_tiny-ddp-cpu_x2".__eq__, [f"mixtral_tiny-{name}-cpu_x2" for name in ("ddp", "fsdp2", "zero3")]
    ),
)
def test_two_ranks_route_as_one(train: Train, cell: str) -> None:
    """Each position goes to two of four experts, in two layers, and the routers' loss reaches backward."""
    two, one = train(cell).readings, train(ALONE).readings

    assert two["expert_load"].parts == one["expert_load"].parts
    assert two["expert_load"].value == 2 * 2 * two["tokens"].value
    assert two["auxiliary_loss"].value == pytest.approx(one["auxiliary_loss"].value, rel=1e-6)
    assert 0.02 * 2 < one["auxiliary_loss"].value < 0.02 * 2 * 1.1  # of two experts in balance, times its coefficient


def test_a_layer_that_is_computed_again_counts_once(train: Train) -> None:
    """Checkpointing calls the experts in backward too."""
    again, once = train("mixtral_tiny-single+ckpt-cpu_x1").readings, train("mixtral_tiny-single-cpu_x1").readings

    assert again["expert_load"].parts == once["expert_load"].parts
    assert again["auxiliary_loss"].value == pytest.approx(once["auxiliary_loss"].value, rel=1e-6)


def test_a_router_without_a_loss_has_none(train: Train) -> None:
    """DeepSeek-V3's is balanced by a bias; its first layer is dense."""
    readings = train("deepseek_v3_tiny-single-cpu_x1").readings

    assert "auxiliary_loss" not in readings
    assert {part.partition(",")[0] for part in readings["expert_load"].parts} == {"layer 1"}
