"""The closed forms of the model state, against the tables of the papers that they come from."""

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.memory_table import explain
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.theory import model_state
from perfsuite.records.formats import FORMAT

MINE = """
from perfsuite.catalog.definitions import Technique

TECHNIQUES = (Technique(name="mine", slot="optimizer", order=20, meaning="Mine.", sets={"optimizer": None}),)
"""


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("t5_large-single-h100_x1", {"parameters": 4, "gradients": 4, "optimizer_state": 8}),
        ("t5_large-single+bf16-h100_x1", {"parameters": 4, "gradients": 4, "optimizer_state": 8}),
        ("t5_large-single+sgd_momentum-h100_x1", {"parameters": 4, "gradients": 4, "optimizer_state": 4}),
        (
            "t5_large-zero1+bf16-h100_x4",
            {"parameters": 2, "gradients": 2, "optimizer_state": 8 / 4, "master_parameters": 4 / 4},
        ),
        (
            "t5_large-zero3+bf16-h100_x8",
            {"parameters": 2 / 8, "gradients": 2 / 8, "optimizer_state": 8 / 8, "master_parameters": 4 / 8},
        ),
        (
            "t5_large-zero3+hpz2+bf16-h100_x8",
            {"parameters": 2 / 8 + 2 / 2, "gradients": 2 / 8, "optimizer_state": 8 / 8, "master_parameters": 4 / 8},
        ),
        (
            "t5_large-zero2+bf16+offload_optimizer-h100_x4",
            {"parameters": 2, "gradients": 0, "optimizer_state": 0, "master_parameters": 0},
        ),
        (
            "t5_large-zero3+bf16+offload_params-h100_x2",
            {"parameters": 0, "gradients": 2 / 2, "optimizer_state": 8 / 2, "master_parameters": 4 / 2},
        ),
        (
            "llama_1b-autotp+bf16-h100_x2",
            {"parameters": 2 / 2, "gradients": 2 / 2, "optimizer_state": 8 / 2, "master_parameters": 4 / 2},
        ),
        ("llama_1b-autotp+dp2-h100_x4", {"parameters": 4 / 2, "gradients": 4 / 2, "optimizer_state": 8 / 2}),
        (
            "gpt_1b7-megatron_distributed+bf16+tp2+dp4-h100_x8",
            {"parameters": 2 / 2, "gradients": 4 / 2, "optimizer_state": 8 / 8, "master_parameters": 4 / 8},
        ),
        ("t5_large-single+bf16+lora-h100_x1", {"parameters": 2}),
        ("t5_large-single+bf16+lora+frozen_fp32-h100_x1", {"parameters": 4}),
        ("t5_large-zero3+bf16+lora-h100_x4", {"parameters": 2 / 4}),
        ("t5_large-fsdp2+bf16+offload-h100_x4", {"parameters": 0, "gradients": 0, "optimizer_state": 0}),
    ],
)
def test_bytes_per_parameter(catalog, cell, wanted):
    """arXiv 1910.02054, section 3.1, with Adam; 2101.06840, section 3, with the optimizer on the host."""
    one = parse_cell(cell, catalog)
    layout = lay_out(one.strategy, one.hardware.world_size)
    found = {name: size / one.model.parameters for name, size in model_state(one, layout).items()}

    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "matrices"),
    [
        ("gpt2_tiny", 2 * 12 * 64**2),  # of the layers: 12h² each
        ("llama_tiny", 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192)),
        ("mixtral_tiny", 2 * (2 * 64 * 64 + 2 * 64 * 32 + 4 * 64)),  # its experts are stacked, and the router is not
    ],
)
def test_muon_keeps_one_moment_of_a_layers_matrix(catalog, model, matrices):
    """AdamW has two of everything else."""
    one = parse_cell(f"{model}-single+muon-h100_x1", catalog)
    found = model_state(one, lay_out(one.strategy, 1))["optimizer_state"]

    assert found == 8 * one.model.parameters - 4 * matrices


def test_an_unknown_optimizer_has_no_closed_form(tmp_path):
    """What a user's own optimizer keeps nobody can tell by hand; the other rows stand."""
    (tmp_path / "techniques").mkdir()
    (tmp_path / "techniques" / "mine.py").write_text(MINE)
    one = parse_cell("t5_large-single+mine-h100_x1", Catalog((tmp_path,)))
    found = model_state(one, lay_out(one.strategy, 1))

    assert found == dict.fromkeys(("parameters", "gradients"), 4 * one.model.parameters)


@pytest.mark.parametrize(
    ("theory", "said"),
    [
        (
            {"parameters": 4096},
            "give 4.00 KiB: parameters 4.00 KiB. They do not cover gradients and optimizer state he",
        ),
        ({"parameters": 4096, "gradients": 4096, "optimizer_state": 0}, "gradients 4.00 KiB, optimizer state 0 B."),
    ],
)
def test_the_explanation_says_what_has_no_closed_form(theory, said):
    """A sum by hand that leaves something out is not presented as the whole."""
    parts = {"parameters": 4096, "activations": 1}
    prediction = Prediction(
        format=FORMAT, cell="", outcome="fits", world_size=1, peak_bytes=4097, parts=parts, theory=theory
    )
    sentences = explain(prediction, 1024)

    assert said in sentences[1]
    assert ("They do not cover" in sentences[1]) == (len(theory) == 1)
