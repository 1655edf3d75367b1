"""The closed forms of the model state, against the tables of the papers that they come from."""

import pytest

from perfsuite.catalog.layouts import lay_out
from perfsuite.cell import parse_cell
from perfsuite.memory.theory import model_state


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
            "t5_large-zero2+bf16+offload_optimizer-h100_x4",
            {"parameters": 2, "gradients": 0, "optimizer_state": 0, "master_parameters": 0},
        ),
        (
            "t5_large-zero3+bf16+offload_params-h100_x2",
            {"parameters": 0, "gradients": 2 / 2, "optimizer_state": 8 / 2, "master_parameters": 4 / 2},
        ),
        ("t5_large-fsdp2+bf16+offload-h100_x4", {"parameters": 0, "gradients": 0, "optimizer_state": 0}),
    ],
)
def test_bytes_per_parameter(catalog, cell, wanted):
    """arXiv 1910.02054, section 3.1, with Adam; 2101.06840, section 3, with the optimizer on the host."""
    one = parse_cell(cell, catalog)
    layout = lay_out(one.strategy, one.hardware.world_size)
    found = {name: size / one.model.parameters for name, size in model_state(one, layout).items()}

    assert found == pytest.approx(wanted, rel=1e-6)
