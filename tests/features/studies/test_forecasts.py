"""Studies that predict: they need no device, say what is predicted and what is published, and hold their claims."""

import dataclasses
from pathlib import Path

import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.predict.plan.answer import Wish, plan
from perfsuite.features.predict.plan.planned import of_model
from perfsuite.features.studies._forecast import Forecast, ForecastReport
from perfsuite.records import codec

CATALOG = Catalog(())
FORECASTS = [name for name, one in CATALOG.all("study").items() if one.forecast]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Where results are written."""
    monkeypatch.chdir(tmp_path)


def rows(name, *options):
    """The exit code, and the rows of the file that the study writes."""
    status = main(["study", name, *options])
    report = codec.read(Path("perf-studies", name, f"{name}.json"), ForecastReport)
    return status, {row.name: row for row in report.rows}


def test_megatrons_table(capsys):
    """Ten rows, each near what was published; the columns say which is which."""
    status, found = rows("megatron-table", "--html=page.html")
    printed = capsys.readouterr().out
    rate = "FLOP/s per device"

    assert status == 0
    assert len(found) == 10
    assert all(abs(row.predicted[rate] / row.published[rate] - 1) < 0.1 for row in found.values())
    assert "predicted, not measured" in printed
    assert f"predicted {rate}" in printed and f"published {rate}" in printed
    assert "predicted" in Path("page.html").read_text()


def test_a_table_ends_with_the_model():
    """--model is the largest; a node whose devices a layout does not fill has no prediction, and says so."""
    status, found = rows("megatron-table", "--model=gpt_3b6", "--hardware=a100_80g_x3")

    assert status == 1
    assert list(found) == ["gpt_1b7", "gpt_3b6"]
    assert "do not fill nodes of 3" in found["gpt_1b7"].reason


def test_the_fewest_nodes_are_the_fewest(capsys):
    """On one node less nothing fits, and on one node no larger model does."""
    status, found = rows("one-node", "--model=gpt_18b")
    node, model = parse_hardware("v100_32g_x4", CATALOG), CATALOG.get("model", "gpt_18b")

    def fits(name, nodes, stack):
        where = dataclasses.replace(node, nodes=nodes)
        return bool(plan(of_model(CATALOG.get("model", name)), where, Wish(tokens=10**9, stack=stack, count=1)).layouts)

    assert status == 0
    nodes = found["fsdp2: fewest nodes"].predicted["nodes"]
    assert fits(model.name, nodes, "fsdp2") and not fits(model.name, nodes - 1, "fsdp2")
    assert found["megatron: largest on one node"].facts["model"] == "gpt_7b5"
    assert not fits("gpt_18b", 1, "megatron")
    assert "upper bound" in capsys.readouterr().out


def test_the_largest_of_a_family_is_asked_once():
    """Two models of it have one answer, and each its own nodes."""
    assert main(["study", "one-node", "--model", "gpt_1b7", "gpt_3b6", "--hardware=a100_80g_x2"]) == 0
    written = codec.read(Path("perf-studies/one-node/one-node.json"), ForecastReport)
    names = [(row.name, row.facts["model"]) for row in written.rows if row.name.startswith("fsdp2")]

    assert names == [
        ("fsdp2: largest on one node", "gpt_7b5"),
        ("fsdp2: fewest nodes", "gpt_1b7"),
        ("fsdp2: fewest nodes", "gpt_3b6"),
    ]


@pytest.mark.parametrize("name", FORECASTS)
def test_answers_bear_rows_without_numbers(name):
    """If nothing is predicted, the study still answers, in sentences."""
    said = CATALOG.get("study", name).answer([Forecast(name="m: largest on one node", reason="it does not fit.")])

    assert said and all(one.endswith(".") for one in said)


@pytest.mark.parametrize("option", ["--hardware=cpu_x2", "--micro-batch=2", "--capacity=1GiB", "--steps=5"])
def test_what_only_measuring_has_is_refused(option, capsys):
    """A CPU, a micro-batch, a capacity and steps have no effect on a prediction."""
    assert main(["study", "one-node", option]) == 2
    assert "one-node predicts" in capsys.readouterr().err
