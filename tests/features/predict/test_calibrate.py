"""The step of a cell on a CPU from what it counts: how constants are fitted, and what is predicted from them."""

import dataclasses
from pathlib import Path

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.predict.calibration import Calibration
from perfsuite.features.predict.time.counted import Counted, CountedRow, calibrate, engines_in_order, predicted_parts
from perfsuite.features.predict.time.on_cpu import SWEEP, kept, rows_of

BASELINES = Path(__file__).parents[3] / "baselines"
TRUE = Calibration(
    machine="a CPU",
    cores=2,
    cells=[],
    seconds={
        "operator": 7e-6,
        "operator_beside": 4e-6,
        "message": 1.5e-3,
        "byte": 6e-9,
        "matmul": 4.0,
        "matmul_half": 20.0,
    },
    flops={"fp32": 1e11, "bf16": 1e11},
)


@pytest.fixture(scope="module")
def rows():
    """The trainings of this repository's baselines."""
    return rows_of(kept(BASELINES), Catalog(()))[0]


@pytest.fixture(scope="module")
def exact(rows):
    """The same cells, as fast as TRUE says."""
    return [
        dataclasses.replace(row, seconds=sum(predicted_parts(row.counted, TRUE).values()), peak_flops=1e11)
        for row in rows
    ]


def test_constants_are_found_again(exact):
    """Those that made the times, from nothing but the times and the counts."""
    found = calibrate(exact, "a CPU", 2)

    assert found.median_error < 0.01
    assert found.seconds["operator"] == pytest.approx(7e-6, rel=0.05)
    assert found.seconds["message"] == pytest.approx(1.5e-3, rel=0.05)
    assert found.pairs == found.pairs_in_order > 50


def test_held_out_cells_are_predicted(rows):
    """Of the repository's own cells, recorded beside other work: as docs/plan.md says."""
    found = calibrate(rows, "a CPU", 2)

    assert found.median_error < 0.25
    assert found.pairs_in_order > 0.8 * found.pairs > 80
    assert found.interval[0] < 1 < found.interval[1]


def test_more_ranks_than_cores_take_turns():
    """Four ranks on two cores compute for twice as long; their messages are as many."""
    counted = Counted(operators=100.0, flop=1e9, messages=3.0, bytes=10.0, ranks=4, precision="fp32")

    assert counted.terms(2, {"fp32": 1e9}) == (200.0, 200.0, 3.0, 10.0, 2.0, 0.0)
    assert counted.terms(4, {"fp32": 1e9}) == (100.0, 100.0, 3.0, 10.0, 1.0, 0.0)


@pytest.mark.parametrize(("technique", "precision"), [("fp8", "bf16"), ("pure_bf16", "pure_bf16"), ("clip", "fp32")])
def test_products_have_the_precision_of_the_cell(catalog, technique, precision):
    """That of fp8 is bf16: its cells measure the matmul of their own dtype, which is half precision."""
    cell = parse_cell(f"llama_tiny-single+{technique}-cpu_x1", catalog)

    assert Counted.of(cell, {}).precision == precision


def test_the_order_of_engines_by_hand(catalog):
    """One pair of two engines is predicted the wrong way round; a pair that is nearly as fast does not count."""
    counted = Counted(operators=1.0, flop=1.0, messages=0.0, bytes=0.0, ranks=2, precision="fp32")

    def row(engine, seconds):
        return CountedRow(parse_cell(f"gpt2_tiny-{engine}-cpu_x2", catalog), counted, seconds, 1.0)

    held = [(row("ddp", 1.0), 1.0), (row("zero1", 1.1), 0.5), (row("zero2", 2.0), 3.0), (row("zero3", 3.0), 2.0)]

    assert engines_in_order(held) == (4, 5)


def test_the_step_of_a_cell_on_a_cpu(capsys):
    """Its time, where it goes, and how well other cells were predicted."""
    cell = "gpt2_tiny-zero2+bf16-cpu_x2"
    status = main(["time", cell, "--predict", "--tokens", "1M", "--baselines", str(BASELINES)])
    printed = capsys.readouterr().out

    assert status == 0
    assert f"{cell}: predicted " in printed and "for 1,000,000 tokens" in printed
    assert "median error of unseen cells" in printed and "one message" in printed


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gpt2_tony-single-cpu_x1", "gpt2_tiny"),
        ("gpt2_tiny-single-cpu_x1 --trace a.json", "of a predicted step on a GPU"),
    ],
)
def test_a_wrong_request_is_refused(capsys, cell, said):
    """Before anything is measured."""
    assert main(["time", *cell.split(), "--predict"]) == 2
    assert said in capsys.readouterr().err


def test_the_sweep_is_of_this_catalog(catalog):
    """On a CPU, and enough for a calibration."""
    assert all(parse_cell(name, catalog).hardware.device is None for name in SWEEP)
    assert len(set(SWEEP)) >= 8
