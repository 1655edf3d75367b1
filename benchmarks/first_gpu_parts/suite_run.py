"""Two parts by pytest itself: every cell is measured once, then as many as possible get baselines of three launches."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from first_gpu_parts.results import NotDone, Results
from perfsuite.catalog.cell_id import CellId
from perfsuite.errors import Refused

ENDED = (0, 1)  # all cells have ended; a cell without a baseline counts as red
BASELINES = "baselines"  # in the results' folder
TEST = '''"""Written by benchmarks/first_gpu.py."""

import pytest


@pytest.mark.perf_cell(*{names!r})
def test_cell(perf_cell):
    perf_cell.check()
'''


def measure_cells(results: Results) -> None:
    """Measure what is not measured yet; each start has a report of its own."""
    left = [name for name in results.names if name not in results.measured()]
    number = len(list(results.folder.glob("cells_*.jsonl"))) + 1
    _pytest(results, left, f"--perf-report=cells_{number:02}.jsonl")


def measured_items(results: Results) -> dict[str, bool]:
    """The cells, and which have been measured or have failed."""
    measured = results.measured()
    return {name: name in measured for name in results.names}


def record_baselines(results: Results) -> None:
    """Record the baselines that are not there yet."""
    left = [name for name, there in baseline_items(results).items() if not there]
    if results.emulated:
        for name in left:
            results.keep(NotDone(part="baselines", item=name, why="an emulated GPU has no baselines"))
        return
    _pytest(results, left, "--perf-update=new")


def baseline_items(results: Results) -> dict[str, bool]:
    """The cells that run, and which have a baseline."""
    runs = [name for name, one in results.measured().items() if one.outcome == "fits"]
    return {name: baseline_path(results, name).exists() for name in runs}


def baseline_path(results: Results, name: str) -> Path:
    """Where pytest writes a cell's baseline."""
    cell = CellId.parse(name)
    return results.folder / BASELINES / cell.hardware / cell.file_name


def _pytest(results: Results, names: Sequence[str], *options: str) -> None:
    """Train these cells. pytest's own folder is that of the results, so that no setting of this repository counts."""
    if not names:
        return
    (results.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (results.folder / "test_first_gpu_cells.py").write_text(TEST.format(names=list(names)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "-p", "no:cacheprovider", "--perf"]
    command += ["--perf-trial=never", *options, "test_first_gpu_cells.py"]
    running = subprocess.Popen(command, cwd=results.folder)
    try:
        running.wait()
    except KeyboardInterrupt:  # pytest got it too: it ends its ranks, and its report has what was measured
        running.wait()
        raise
    if running.returncode not in ENDED:
        raise Refused(f"pytest ended with status {running.returncode}.")
