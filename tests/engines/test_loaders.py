"""Data cells: every loader reads the samples that its library promises, and a wrong share is red."""

import importlib.util

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.compare.judge import judge
from perfsuite.engines.loaders import ROWS, Loading, is_kept
from perfsuite.errors import Refused
from perfsuite.meters.samples import differences
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT

KEPT = sum(map(is_kept, range(ROWS)))  # 191: two ranks cannot share them evenly
MISSING = importlib.util.find_spec("datasets") is None
hugging_face = pytest.mark.skipif(MISSING, reason="datasets is not installed")
# What each library does with a rest that two ranks with batches of four cannot share: samples, repeated, drawn.
READS = {
    "torch_loader": (KEPT + 1, 1, KEPT + 1),
    "hf_map": (KEPT, 0, None),
    "hf_iterable": (ROWS, 0, ROWS),
    "accelerate_shard": (KEPT + 1, 1, KEPT + 1),
    "accelerate_stream": (ROWS, 0, ROWS),
    "accelerate_dispatch": (KEPT + 1, 1, KEPT),
}
NEEDS = ("hf_map", "hf_iterable", "accelerate_stream")
ENGINES = [pytest.param(one, marks=hugging_face) if one in NEEDS else one for one in READS]


@pytest.mark.parametrize("engine", ENGINES)
def test_samples_are_those_that_the_library_promises(measure, engine):
    """All samples are read, and only those are repeated that fill up the ranks or their last batches."""
    measurement = measure(f"rows-{engine}-cpu_x2")
    assert measurement.outcome == "fits", measurement.failure
    readings = {name: reading.value for name, reading in measurement.readings.items()}
    samples, repeated, drawn = READS[engine]

    assert readings["samples"] == samples
    assert readings["repeated_samples"] == repeated
    assert readings["distinct_samples"] == samples - repeated
    assert readings["missing_samples"] == readings["same_epochs"] == 0
    assert readings.get("drawn_samples") == drawn
    assert readings.get("wrongly_resumed_samples", 0) == 0


@pytest.mark.parametrize("engine", slow_unless(lambda engine: engine == "accelerate_dispatch", list(READS)))
def test_the_loader_is_named(measure, engine):
    """The evidence has the class that ran and its library's version; the step's metrics are there."""
    if engine in NEEDS and MISSING:
        pytest.skip("datasets is not installed")
    measurement = measure(f"rows-{engine}-cpu_x2")
    library = measurement.engine["loader"].partition(".")[0]

    assert measurement.engine.keys() >= {"loader"} and library in ("torch", "accelerate")
    assert measurement.readings["python_calls"].value > 100
    assert not {"loss", "tokens", "model_flop"} & measurement.readings.keys()


FAULTS = [
    ("torch_loader", "repeats_a_sample", {"repeated_samples", "distinct_samples", "missing_samples"}),
    ("torch_loader", "reads_the_others_share", {"repeated_samples", "missing_samples", "distinct_samples"}),
    ("torch_loader", "loses_the_tail", {"samples", "distinct_samples", "missing_samples"}),
    ("torch_loader", "ignores_the_epoch", {"same_epochs"}),
    ("accelerate_shard", "skips_nothing", {"wrongly_resumed_samples"}),
]


@pytest.mark.parametrize(("engine", "fault", "red"), FAULTS)
def test_a_wrong_share_is_red(measure, catalog, engine, fault, red):
    """A sample twice, a share of another rank, a lost tail, an order that stays, a resume at the start."""
    cell = f"rows-{engine}-cpu_x2"
    old = measure(cell, steps=3)
    base = Baseline(format=FORMAT, cell=cell, date="", commit="", measurement=old)
    verdict = judge(measure(cell, fault, steps=3), base, catalog.metrics("data"), strategy=engine)
    found = {line.metric for line in verdict.lines if line.status == "regressed"}

    assert verdict.status == "regressed"
    assert found >= red


def test_another_loader_is_a_wrong_engine(measure):
    """A loader that is not the library's ends the cell."""
    measurement = measure("rows-accelerate_shard-cpu_x2", "another_loader")

    assert measurement.outcome == "failed"
    assert "but loads by torch.utils.data.dataloader.DataLoader" in measurement.failure.message


def test_a_longer_order_differs_at_each_place_more():
    """Two orders are compared place by place."""
    assert differences([1, 2, 3], [1, 3, 2]) == 2
    assert differences([1, 2], [1, 2, 3]) == differences([1, 2, 3], [1, 2]) == 1


def test_neither_ranks_nor_batches_divide_the_samples():
    """Otherwise no library would have to fill up or to leave out anything."""
    assert len(Loading.expected) == KEPT and KEPT % 2 and ROWS % 4


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("rows-ddp-cpu_x2", "rows has no weights"),
        ("gpt2_tiny-hf_map-cpu_x2", "hf_map reads rows without a model: write rows-hf_map-cpu_x2"),
        ("wire-hf_map-cpu_x2", "write rows-hf_map-cpu_x2"),
        ("rows-all_reduce-cpu_x2", "write wire-all_reduce-cpu_x2"),
        ("rows-torch_loader+bf16-cpu_x2", "its rows reach no model"),
        ("rows-torch_loader+dp2-cpu_x2", "lays out all ranks itself"),
        ("rows-accelerate_dispatch-cpu_x1", "at least 2 ranks"),
    ],
)
def test_what_makes_no_sense_is_refused(catalog, cell, reason):
    """Models do not go with data loaders, nor do techniques."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)


def test_batches_and_rows_have_sizes(catalog):
    """Unlike a message, a batch has a size that the cell can change."""
    assert parse_cell("rows-hf_map-cpu_x2-b8-s32", catalog).workload.micro_batch == 8
