"""AdamW without a schedule trains and evaluates other weights, and says which it has."""

import pytest
from parity import difference_of, readings_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

CELL = "gpt2_tiny-single+schedule_free+nodrop-cpu_x1-b4"
PARAMETERS = 141_056  # gpt2_tiny's


def _readings(measure, cell, *faults):
    pytest.importorskip("schedulefree", reason="a cell needs it")
    return readings_of(measure, cell, *faults)


@pytest.mark.parametrize("engine", ["ddp", "fsdp2", pytest.param("fsdp1", marks=pytest.mark.slow)])
def test_it_means_the_same_on_every_engine(measure, engine):
    """Whole, divided and in pieces: it steps each number for itself."""
    parallel = _readings(measure, f"gpt2_tiny-{engine}+schedule_free+nodrop-cpu_x2")

    assert difference_of(_readings(measure, CELL), parallel) < 1e-5


def test_it_is_not_adamw(measure):
    """The losses part after the first step, and its two moments are those of the theory, without counts of steps."""
    free, adamw = _readings(measure, CELL), _readings(measure, CELL.replace("+schedule_free", ""))

    assert free["loss"].samples[0] == adamw["loss"].samples[0]
    assert difference_of(adamw, free) > 5e-5
    assert free["optimizer_state_bytes"].value == 8 * PARAMETERS


def test_an_evaluation_has_the_average(measure):
    """Each forward meets the weights of its mode, also after an evaluation."""
    _readings(measure, "gpt2_tiny-single+schedule_free+epochs2-cpu_x1", "first_steps:keeps_modes")


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("gpt2_tiny-zero2+schedule_free-cpu_x2", "does not pass on train"),
        ("gpt2_tiny-fairscale_sdp+schedule_free-cpu_x2", "does not pass on train"),
        ("gpt2_tiny-fsdp2+schedule_free+dcp-cpu_x2", "saves its weights in eval mode"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """Where nobody would say the mode, the wrong weights would be evaluated or saved."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
