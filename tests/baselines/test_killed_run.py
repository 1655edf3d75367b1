"""A run that is killed leaves a readable report of what had finished: its lines, and its page."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import Refused
from perfsuite.records.report_lines import read_measured

ROOT = Path(__file__).parents[2]
MODELS = ("bloom_tiny", "gpt2_tiny", "llama_tiny", "t5_tiny")
ENGINES = ("ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3")
RECIPES = ("", "+bf16", "+clip", "+acc2", "+nodrop", "+sgd")
CONFTEST = f"""
import itertools, json, time
import msgspec
from perfsuite.run.gatekeeper import Gatekeeper
from perfsuite.records.baseline import Baseline
from perfsuite.records.codec import read
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict
from pathlib import Path

STORED = read(Path({str(ROOT)!r}, "baselines/cpu_x2/gpt2_tiny-ddp+bf16-cpu_x2.json"), Baseline)

def check(self, cell, *_, **__):
    "A real measurement under the cell's name, as large as any, in 5 ms."
    time.sleep(0.005)
    measured = msgspec.structs.replace(STORED.measurement, cell=cell.id)
    baseline = msgspec.structs.replace(STORED, cell=cell.id, measurement=measured)
    verdict = Verdict(cell=cell.id, status=Status.OK)
    return Result(measurement=measured, baseline=baseline, verdict=verdict)

Gatekeeper.check = check
"""


def cells():
    """A hundred valid ones."""
    found, catalog = [], Catalog()
    for model in MODELS:
        for engine in ENGINES:
            for recipe in RECIPES:
                try:
                    found.append(make_cell(model, engine + recipe, "cpu_x2", catalog).id)
                except Refused:
                    continue
    return found[:100]


@pytest.mark.parametrize(
    "until",
    [
        40,
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(number, marks=pytest.mark.slow) for number in range(5, 100, 15)),
    ],
)
def test_a_killed_run_leaves_what_had_finished(until, tmp_path):
    """SIGKILL after some of 100 cells, at no chosen moment: every line that has an end is a result, all cells that the
    page has are among them, and summary makes a page of all.
    """
    names = cells()
    test = f"import pytest\n@pytest.mark.perf_cell(*{names!r})\ndef test_it(perf_cell): perf_cell.check()\n"
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    lines, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    options = ["--perf", "-q", "-p", "no:cacheprovider", f"--perf-report={lines}", f"--perf-html={page}"]
    run = subprocess.Popen([sys.executable, "-m", "pytest", *options], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        while run.poll() is None and not (page.exists() and lines.read_bytes().count(b"\n") > until):
            time.sleep(0.001)
        time.sleep(0.0002 * until)  # five cells take longer, the last of 95
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    measured = read_measured(lines)
    told = page.read_text()

    assert len(names) == 100 > len(measured) >= until
    assert [one.verdict.cell for one in measured] == names[: len(measured)]
    shown = told.count('class="card green measured"')
    assert told.endswith("</html>") and 1 <= shown <= len(measured)
    assert f"{100 - shown} more cells have no result yet" in told
    main(["summary", str(lines), "--html", str(tmp_path / "all.html")])
    cells_measured = "1 cell" if len(measured) == 1 else f"{len(measured)} cells"
    assert f"None of {cells_measured} is red." in (tmp_path / "all.html").read_text()
