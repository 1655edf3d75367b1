"""Packed documents train alike on one rank and on several, and a cell in which they see each other is red."""

import re

import pytest
from parity import difference_of, readings_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.rank.tasks import IGNORED, make_packed, next_tokens

CELL = "llama_tiny-single+packed+nodrop-cpu_x1-b4"


def test_row_is_documents_without_padding():
    """Positions begin anew, every token is drawn, and no label is another document's first token."""
    model = Catalog().get("model", "llama_tiny")
    row = make_packed(model, seed=7)
    begins = (row["position_ids"] == 0).nonzero()[0]

    assert begins[0] == 0
    assert len(begins) > 1
    assert (row["labels"][begins] == IGNORED).all()
    assert (row["labels"] != IGNORED).sum() == model.workload.sequence_length - len(begins)
    assert next_tokens({"labels": row["labels"][None]}) == model.workload.sequence_length - len(begins)


@pytest.mark.parametrize("attention", ["", "+eager"])
def test_documents_are_alone_with_each_attention(measure, attention):
    """The update is that of a plain rank with eager attention, and the documents are counted."""
    readings = readings_of(measure, CELL.replace("+packed", f"{attention}+packed"))

    assert readings["documents"].value > 4
    assert readings["update_error"].value < 1e-5


@pytest.mark.parametrize("engine", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_packing_means_the_same_on_every_engine(measure, engine):
    """Ranks have different numbers of labels, and the loss is the mean of all."""
    single, parallel = readings_of(measure, CELL), readings_of(measure, f"llama_tiny-{engine}+packed+nodrop-cpu_x2")

    assert difference_of(single, parallel) < 1e-4
    assert single["documents"].value == parallel["documents"].value


@pytest.mark.parametrize("attention", ["", "+eager"])
def test_documents_that_see_each_other_are_red(measure, attention):
    """With a cache, transformers does not ask for positions, and says nothing."""
    cell = f"llama_tiny-single{attention}+packed-cpu_x1"
    measurement = measure(cell, "perfsuite.rank.faults.attention:documents_mixed")

    assert measurement.outcome == "failed"
    assert "so they see each other" in measurement.failure.message


def test_model_without_positions_is_refused(measure):
    """Bloom's attention has none."""
    measurement = measure("bloom_tiny-single+packed-cpu_x1")

    assert measurement.outcome == "unsupported"
    assert "BloomForCausalLM takes no position_ids" in measurement.failure.message


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("t5_tiny-single+packed-cpu_x1", "no causal model"),
        ("gpt2_tiny-pp_gpipe+acc2+packed-cpu_x2", "no positions"),
        ("llama_tiny-single+packed+hf_trainer-cpu_x1", "rows of its own data set"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What cannot be is refused before anything runs."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_cell(cell, catalog)
