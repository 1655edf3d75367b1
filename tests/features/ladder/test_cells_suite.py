"""The suite of cells that asv runs: its series, what it says of releases that break, and what explains a change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import perfsuite
from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused
from perfsuite.features.ladder.cell_series import measured, traced
from perfsuite.features.ladder.rung_evidence import add, behind, describe, read, why
from perfsuite.features.predict.trace.tracing import job_of, trace
from perfsuite.features.predict.trace_records import Trace
from perfsuite.features.predict.trace_summary import PEAK, summarize
from perfsuite.records.sample import Reading

CELL = "gpt2_tiny-ddp-cpu_x2"
SUITES = Path(perfsuite.__file__).parent / "features" / "ladder" / "suites"
PEAK_SERIES = "series.Traced.track_peak_memory"


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """What asv's processes see of one cell in a ladder: the series' values, and the folder of evidence."""
    folder = tmp_path_factory.mktemp("evidence")
    script = f"""
import contextlib, json, sys
from pathlib import Path
sys.path.insert(0, {str(SUITES)!r})
from cells import series
from cells.series import CATEGORIES, CELLS, Traced, perfsuite_found
@contextlib.contextmanager
def watched():
    global origin, real, beside
    with perfsuite_found():
        import perfsuite
        origin = Path(perfsuite.__file__)
        real, beside = str(origin.resolve()), [one.name for one in origin.parents[1].iterdir()]
        yield
series.perfsuite_found = watched
suite = Traced()
found = suite.setup_cache()
names = [name for name in dir(suite) if name.startswith("track_") and name != "track_memory"]
values = {{name: getattr(suite, name)(found, CELLS[0]) for name in names}}
values["memory"] = {{category: suite.track_memory(found, CELLS[0], category) for category in CATEGORIES}}
print(json.dumps([values, real, beside, origin.parents[1].exists()]))
"""
    options = {"PERFSUITE_HISTORY_CELLS": CELL, "PERFSUITE_LADDER_EVIDENCE": str(folder), "ASV_COMMIT": "now"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # as asv does
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | options, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    values, origin, beside, left = json.loads(done.stdout)
    return {"values": values, "origin": Path(origin), "beside": beside, "left": left, "folder": folder}


def test_the_parts_of_the_peak_are_series_that_add_up(observed):
    """Every category of memory is a series of its own; together they are the peak."""
    assert sum(observed["values"]["memory"].values()) == observed["values"]["track_peak_memory"] > 0


def test_the_counts_are_series(observed, measure):
    """Operators, messages and FLOPs are those of a run."""
    run = measure(CELL).readings
    metrics = {"operators": "operators", "communication": "communication_bytes", "hardware_flop": "hardware_flop"}

    assert {name: observed["values"][f"track_{name}"] for name in metrics} == {
        name: run[metric].value for name, metric in metrics.items()
    }


def test_what_trains_has_no_failure(observed):
    """Failures are a number that goes up."""
    assert observed["values"]["track_failures"] == 0


def test_perfsuite_is_the_suites_own_and_alone(observed):
    """Without PYTHONPATH the suite finds the perfsuite that it belongs to, and brings nothing else that lies there."""
    assert observed["origin"] == Path(perfsuite.__file__).resolve()
    assert observed["beside"] == ["perfsuite"]


def test_no_temporary_folder_is_left(observed):
    """asv's own processes end without Python's exit handlers."""
    assert not observed["left"]


def test_every_series_has_evidence_of_its_parameters(observed):
    """Evidence is found under the names and parameters that asv gives to a series."""
    evidence = read(observed["folder"], "now")

    assert evidence[PEAK_SERIES][repr(CELL)]["value"] == observed["values"]["track_peak_memory"]
    assert evidence["series.Traced.track_memory"][f"{CELL!r}, 'activations'"]["suspects"]


@pytest.mark.slow
def test_evidence_names_the_operator_and_module_of_an_injected_change(catalog, tmp_path):
    """One operator more in one module: the bytes that it keeps are explained by its name and place."""
    cell = parse_cell("gpt2_tiny-single-cpu_x1", catalog)
    job = job_of(cell, 0, catalog, counted=True)
    changed = msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, faults=["faults:squares"]))
    for commit, one in zip(("before", "after"), trace([job, changed], processes=2), strict=True):
        assert isinstance(one, Trace)
        reading = summarize(cell, 0, one).readings[PEAK]
        add(tmp_path, commit, {PEAK_SERIES: {repr(cell.id): behind(PEAK, reading)}})

    said = why(tmp_path, "before", "after", PEAK_SERIES, repr(cell.id))
    assert said.startswith("activations +")
    assert "transformer.h.1.mlp" in said


def test_a_release_that_breaks_is_a_failure_with_its_reason(tmp_path, monkeypatch):
    """A library that cannot be imported: one failure, no other number, and the exception as evidence."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("raise ImportError('this release is broken')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(perfsuite.__file__).parents[1])]))
    found = traced([CELL], str(tmp_path), "broken", "series.Traced")[CELL]
    evidence = read(tmp_path, "broken")["series.Traced.track_failures"]

    assert found == {"failures": 1}
    assert "ImportError: this release is broken" in evidence[repr(CELL)]


def test_a_cell_that_no_trace_can_tell_of_is_refused():
    """That is no failure of a release, so it is no number."""
    with pytest.raises(Refused, match="compile"):
        traced(["gpt2_tiny-single+compile-cpu_x1"], "", "", "")


@pytest.mark.slow
def test_a_launch_gives_a_time():
    """Of its steps, and says that it did not fail."""
    found = measured([CELL], "", "now", "series.Measured")[CELL]

    assert found["failures"] == 0 and found["step_time"] > 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (None, "TypeError: no __getitems__", "TypeError: no __getitems__"),
        (None, ["first", "second"], "first; second"),
        ({"fetches": 2048, "rows": 5}, {"fetches": 64, "rows": 5}, "fetches 2,048 -> 64"),
        ({"metric": "operators", "value": 7}, None, ""),
        ({"metric": "hardware_flop", "value": 7}, {"metric": "hardware_flop", "value": 8, "parts": {"aten.mm": 8}}, ""),
    ],
)
def test_evidence_is_told_in_words(old, new, words):
    """Texts stand for themselves, objects of numbers say what moved."""
    assert describe(old, new) == words


def test_evidence_of_one_part_is_that_part_alone():
    """The series of a category is explained by its own operators, whatever else moved more."""
    readings = [
        Reading(
            value=size + 2 * more,
            parts={"activations": size, "temporaries": 2 * more},
            suspects={"activations: aten.mul.Tensor @ mlp": size, "temporaries: aten.mm.default @ mlp": 2 * more},
        )
        for size, more in ((1024, 0), (2048, 4096))
    ]
    before, after = (behind(PEAK, reading, "activations") for reading in readings)

    assert describe(before, after) == "activations +1.00 KiB: aten.mul.Tensor in mlp"


def test_asv_accepts_the_suite(tmp_path):
    """``asv check`` finds every benchmark and nothing wrong with it."""
    pytest.importorskip("asv")
    (tmp_path / "repo").mkdir()
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q", "-b", "main"], [*identity, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", *command], cwd=tmp_path / "repo", check=True)
    config = {"version": 1, "project": "cells", "repo": "repo", "branches": ["main"], "dvcs": "git"}
    config |= {"environment_type": "existing", "benchmark_dir": str(SUITES / "cells")}
    (tmp_path / "asv.conf.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "asv", "check", "-E", f"existing:{sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No problems found" in done.stdout


def test_a_cell_that_cannot_be_trained_has_failures_alone():
    """Its other series say that they do not apply; those of a cell that trains, or does not fit, do."""
    names = ["PERFSUITE_HISTORY_MEASURE", "PERFSUITE_HISTORY_CELLS"]
    script = f"""
import os, sys
os.environ.update({{{names[0]!r}: "1", {names[1]!r}: {CELL!r}}})
sys.path.insert(0, {str(SUITES)!r})
from cells import series
suites = (series.Traced, series.Measured)
has = dict.fromkeys([name.removeprefix("track_") for suite in suites for name in dir(suite)], 1)
for suite in suites:
    for name in dir(suite):
        setup = getattr(getattr(suite, name), "setup", None)
        if not name.startswith("track_") or setup is None:
            print(name) if name.startswith("track_") else None
            continue
        setup({{{CELL!r}: has}}, {CELL!r}, "activations")
        try:
            setup({{{CELL!r}: {{"failures": 1}}}}, {CELL!r}, "activations")
        except NotImplementedError:
            continue
        print(name, "applies")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["track_failures", "track_failures"]
