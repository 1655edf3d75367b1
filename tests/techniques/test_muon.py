"""Muon steps the matrices of the layers, whole or divided, and AdamW all else."""

import pytest
from parity import difference_of, readings_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused

CELL = "gpt2_tiny-single+muon+nodrop-cpu_x1-b4"
PARAMETERS, MATRICES, OTHERS = 141_056, 2 * 12 * 64**2, 20  # gpt2_tiny's elements, and parameters that AdamW steps


@pytest.mark.parametrize(
    "engine", ["ddp", "fsdp2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fairscale_sdp", "tp"))]
)
def test_muon_means_the_same_on_every_engine(measure, engine):
    """Divided matrices are made orthogonal whole: DTensor sends what the products need. Parts would go another way."""
    model = "llama_tiny" if engine == "tp" else "gpt2_tiny"
    single = readings_of(measure, CELL.replace("gpt2_tiny", model))
    ranks = "cpu_x2-b4" if engine == "tp" else "cpu_x2"
    parallel = readings_of(measure, f"{model}-{engine}+muon+nodrop-{ranks}")

    assert difference_of(single, parallel) < 1e-5
    assert parallel["update_error"].value < 1e-5


def test_muon_is_not_adamw(measure):
    """The bound between engines tells the two apart, and no count of FLOPs has the optimizer's products."""
    muon, adamw = readings_of(measure, CELL), readings_of(measure, CELL.replace("+muon", ""))

    assert muon["loss"].samples[0] == adamw["loss"].samples[0]
    assert difference_of(adamw, muon) > 5e-5
    assert muon["hardware_flop"].value == adamw["hardware_flop"].value
    assert not muon["unknown_operators"].parts


def test_a_matrix_moves_by_an_orthogonal_one(measure):
    """Of each layer, and none besides: neither the embeddings nor the head that is tied to them."""
    measurement = measure(CELL, "first_steps:is_muons")

    assert measurement.outcome == "fits", measurement.failure


def test_state_is_its_theory(measure):
    """One moment of a layer's matrix, two and a count of steps of all else."""
    held = readings_of(measure, CELL)["optimizer_state_bytes"].value

    assert held == 4 * MATRICES + 8 * (PARAMETERS - MATRICES) + 4 * OTHERS


@pytest.mark.parametrize("cell", ["gpt2_tiny-single+muon+safetensors-cpu_x1", "gpt2_tiny-fsdp2+muon+dcp-cpu_x2"])
def test_training_resumes(measure, cell):
    """A checkpoint has the state of both optimizers, and a training that loads it goes on to the bit."""
    readings = readings_of(measure, cell)

    assert readings["wrongly_loaded_tensors"].value == readings["wrongly_resumed_steps"].value == 0


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("gpt2_tiny-zero2+muon-cpu_x2", "pieces of parameters.*no matrices"),
        ("gpt2_tiny-fsdp1+muon-cpu_x2", "pieces of parameters.*no matrices"),
        ("llama_tiny-autotp+muon-cpu_x2", "parts of matrices as plain tensors"),
        ("gpt2_tiny-megatron+muon-cpu_x1", "Megatron makes its own optimizer"),
    ],
)
def test_refusal_says_why(catalog, cell, reason):
    """What would step something else is refused before anything runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
