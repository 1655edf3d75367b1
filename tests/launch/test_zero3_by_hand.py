"""A cell of the catalog and the same training as a script: gpt2_tiny under ZeRO-3, on two ranks."""

from contextlib import closing
from pathlib import Path

import pytest
from small_scripts import FEW

from perfsuite.catalog.cell import make_cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.run.runner import Runner

BY_HAND = Path(__file__).parents[1] / "support" / "zero3_by_hand.py"  # a script: not imported here
ALIKE = (
    *("peak_memory_bytes", "parameters_bytes", "master_parameters_bytes", "optimizer_state_bytes", "gradients_bytes"),
    *("communication_bytes", "collectives", "model_flop", "hardware_flop"),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What both measured: the cell, and the script."""
    folder = tmp_path_factory.mktemp("by_hand")
    (folder / "train.py").write_text(BY_HAND.read_text())
    catalog = Catalog(extra_models=(script("train", "torchrun --nproc-per-node 2 train.py 30", folder),))
    cells = parse_cell("gpt2_tiny-zero3-cpu_x2", catalog), make_cell("train", ENGINE, "cpu_x2", catalog)
    with closing(Runner(catalog, FEW)) as runner:
        return [runner.measure(cell) for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ALIKE)
def test_a_script_has_the_numbers_of_its_cell(both, metric):
    """To the byte, and for each kind of collective."""
    cell, other = (one.readings[metric] for one in both)

    assert other.value == cell.value
    if metric in ("communication_bytes", "collectives"):
        assert other.parts == cell.parts


@pytest.mark.slow
def test_its_losses_are_those_of_its_cell(both):
    """The cell's first steps show a script's loop, and are not measured."""
    cell, other = (one.readings["loss"].samples for one in both)

    assert other[: len(cell) - 3] == pytest.approx(cell[3:], rel=1e-4)
