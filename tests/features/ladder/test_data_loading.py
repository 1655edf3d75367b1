"""The suite of data loading on the running torch, with datasets from the index in an environment of its own: beside
transformers it would change what a training process imports. What needs that release is marked ``index``.
"""

import ast
import importlib
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perfsuite.environments.environments import with_releases
from perfsuite.features.ladder.ladder import read_suite, suite_folder

FOLDER = suite_folder("data_loading")
CHANGED = ("arrow format", "pandas format", "subclass that overrides __getitem__", "set_transform, for one row")
BYPASSED = ("wrapper that delegates by __getattr__", "subset of a wrapper that delegates by __getattr__")
WORKERS = "torch format, 2 workers"
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from data_loading import loading
import datasets

loading.ROUNDS = 2
loading.TIMED["broken"] = lambda kit: 1 / 0
report = {"real": loading.Delivered().setup_cache(), "seconds": loading.Speed().setup_cache()}
with loading._kit() as kit:
    del datasets.Dataset.__getitems__
    asked = sys.argv[2:]
    report["without"] = {name: loading._epoch(kit, *case) for name, case in loading.CASES.items() if name in asked}
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the suite's evidence."""
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="module")
def found(evidence: Path) -> dict[str, Any]:
    """What the suite finds, as it is and without the method that DataLoader took up."""
    environment = with_releases(["datasets==5.2.0"])
    variables = {**environment.variables(), "PERFSUITE_LADDER_EVIDENCE": str(evidence), "ASV_COMMIT": "abc"}
    done = subprocess.run(
        [environment.python, "-c", SCRIPT, str(FOLDER.parent), *CHANGED, *BYPASSED, WORKERS],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_suite_says_what_it_needs() -> None:
    """The record of the suite is read, and pins what lies between torch and datasets."""
    suite = read_suite(FOLDER)

    assert {"torch", "datasets", "numpy==1.23.5"} <= set(suite.requires) and suite.python == "3.10"


def test_python_38() -> None:
    """The suite runs on the Python of old releases: none of its syntax is newer than 3.8."""
    for file in FOLDER.glob("*.py"):
        assert ast.parse(file.read_text(), feature_version=(3, 8)).body


@pytest.mark.network
def test_wrapper_is_bypassed(found: dict[str, Any]) -> None:
    """All 2,048 samples of a wrapper that delegates are wrong, in a subset too, and nothing is raised."""
    wrong, failures = found["real"]["wrong"], found["real"]["failures"]

    assert [(wrong[name], failures[name]) for name in BYPASSED] == [(2048, False)] * 2


@pytest.mark.network
def test_transform_of_one_row(found: dict[str, Any]) -> None:
    """One sample per batch comes of a transform written for one row: 64 of 2,048."""
    assert found["real"]["wrong"]["set_transform, for one row"] == 2048 - 64


@pytest.mark.network
def test_what_works(found: dict[str, Any]) -> None:
    """Formats, samplers, workers, plain wrappers, concatenations and streams deliver what they should."""
    broken = {name for name, count in found["real"]["wrong"].items() if count or found["real"]["failures"][name]}

    assert not [name for name in broken if name.startswith(("python", "numpy", "torch", "stream", "concat"))]
    assert not broken & {"wrapper", "subset", "set_transform, for batches"}


@pytest.mark.network
def test_without_the_method_nothing_is_wrong(found: dict[str, Any]) -> None:
    """``__getitems__`` of datasets is what breaks them: with it gone, each of them delivers each sample."""
    real, without = found["real"], found["without"]

    assert all(real["wrong"][name] or real["failures"][name] for name in (*CHANGED, *BYPASSED))
    assert [without[name][0] for name in (*CHANGED, *BYPASSED)] == [0] * 6
    assert [without[name][3] for name in (*CHANGED, *BYPASSED)] == [""] * 6


@pytest.mark.network
def test_fetches(found: dict[str, Any]) -> None:
    """One fetch per batch where the method is used, one per sample where it is not; workers are counted too."""
    fetches = found["real"]["fetches"]

    assert [fetches[f"torch format{more}"] for more in ("", ", 2 workers")] == [64, 64]
    assert (fetches["wrapper"], found["without"][WORKERS][1]) == (2048, 2048)


@pytest.mark.network
def test_an_exception_is_no_count_of_fetches(found: dict[str, Any]) -> None:
    """If an epoch raised, its fetches are not reported."""
    raised = [name for name, failed in found["real"]["failures"].items() if failed]

    assert raised and all(math.isnan(found["real"]["fetches"][name]) for name in raised)


@pytest.mark.network
def test_fetches_do_not_apply_where_an_epoch_raised(found: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """asv is told so, by the cases that raised and no others: else their NaN would be a second failure."""
    monkeypatch.syspath_prepend(FOLDER.parent)
    loading = importlib.import_module("data_loading.loading")
    skipped = set()
    for name in loading.CASES:
        try:
            loading.Delivered.track_fetches.setup(found["real"], name)
        except NotImplementedError:
            skipped.add(name)

    assert skipped == {name for name, failed in found["real"]["failures"].items() if failed}


@pytest.mark.network
def test_evidence(found: dict[str, Any], evidence: Path) -> None:
    """The evidence for a wrong sample and a failure is in the ladder, under the benchmark and its parameter."""
    told = json.loads((evidence / "abc.json").read_text())

    assert "number 0 was list {'id': 0" in told["loading.Delivered.track_wrong_samples"][repr(BYPASSED[0])]
    assert "Error: " in told["loading.Delivered.track_failures"]["'subclass that overrides __getitem__'"]
    assert os.listdir(evidence) == ["abc.json"]


@pytest.mark.network
def test_seconds(found: dict[str, Any]) -> None:
    """Each timed case has a time; how they compare is for the ladder to tell, a test would flicker."""
    seconds = {name: one for name, one in found["seconds"].items() if name != "broken"}

    assert len(seconds) == 8 and all(0 < one < 1 for one in seconds.values())


@pytest.mark.network
def test_one_that_raises(found: dict[str, Any]) -> None:
    """A timed case that raises fails with its exception, and fails alone."""
    assert found["seconds"]["broken"] == "ZeroDivisionError: division by zero"
