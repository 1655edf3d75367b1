"""Every option of a run, with every kind of cell: none makes a cell that is sound end with an error of ours."""

import dataclasses
import itertools
from contextlib import closing
from typing import Any

import pytest
from small_scripts import START

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import script
from perfsuite.run.runner import Runner, Settings

CELLS = {  # the cheapest of each kind
    "training": "gpt2_tiny-single-cpu_x1",
    "inference": "gpt2_tiny-forward-cpu_x1",
    "xla": "gpt2_tiny-jax_dp+nodrop-cpu_x2",
    "communication": "wire-all_reduce-cpu_x2",
    "script": "train-script-cpu_x1",
    "data": "rows-torch_loader-cpu_x2",
}
PLAIN = Settings(steps=1, warmup=1)
OPTIONS: dict[str, dict[str, Any]] = {
    "capacity": {"capacity_bytes": 2**30},
    "fewest steps": {"warmup": 0},
    "more steps": {"steps": 3},
    "native kernels": {"kernels": "native"},
    "no blocks": {"unfenced": False},
    "long": {"long": 20},
}
OURS = ("ValueError", "IndexError", "KeyError", "AttributeError", "TypeError", "AssertionError", "StatisticsError")
FAST = ("training", "script", "data")  # the others import or compile for seconds


def test_every_kind_of_cell_is_tried():
    """A new process needs a cell here."""
    assert CELLS.keys() == PROCESSES.keys()


@pytest.mark.parametrize(
    ("option", "process"),
    [
        pytest.param(*both, marks=[] if both[1] in FAST else pytest.mark.slow)
        for both in itertools.product(OPTIONS, CELLS)
    ],
)
def test_every_option_works_with_every_kind_of_cell(tmp_path, option, process):
    """The cell is measured, or refused in a sentence that says why."""
    (tmp_path / "train.py").write_text(f"{START}\nfor _ in range(300): step()")
    catalog = Catalog(extra_models=(script("train", "python train.py", tmp_path),))
    with closing(Runner(catalog, dataclasses.replace(PLAIN, **OPTIONS[option]))) as runner:
        found = runner.measure(parse_cell(CELLS[process], catalog))

    assert found.outcome in ("fits", "unsupported"), found.failure
    assert not found.failure or not any(f"{name} " in found.failure.message for name in OURS)
