"""What remains after faults in real ranks. That each is red, and for the right reason, is test_selftest.py's."""

import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from faults import named

from perfsuite.catalog.cell import parse_cell
from perfsuite.run.runner import Runner, Settings

DDP = "gpt2_tiny-ddp-cpu_x2"


@pytest.fixture(scope="module")
def impatient(catalog):
    """Measures a cell with a fault, and waits five seconds for a rank that does not move."""
    settings = Settings(steps=3, warmup=1, step_timeout=5.0, import_path=(str(Path(__file__).parents[1] / "support"),))
    runner = Runner(catalog, settings)
    cell, ends = parse_cell(DDP, catalog), "perfsuite.rank.faults.ends"
    yield lambda fault: runner.measure(replace(cell, faults=(f"{ends}:{fault}",)))
    runner.close()


def test_stack_of_a_hanging_rank_is_shown(impatient):
    """The last lines of a rank that hangs say where it is."""
    assert "ends.py" in impatient("hangs").failure.tail


def test_cell_after_a_fault_is_untouched(measure, runner, catalog):
    """A cell that runs right after a failed one, from the same warm server, measures what it always does."""
    before = measure(DDP)
    measure(DDP, "killed")
    after = runner.measure(parse_cell(DDP, catalog))

    assert after.outcome == "fits"
    assert after.readings["peak_memory_bytes"] == before.readings["peak_memory_bytes"]


def test_siblings_of_a_dead_rank_end_at_once(measure):
    """The cell ends long before its siblings' timeout of 120 s."""
    assert measure(DDP, "killed").wall_seconds < 60


def test_no_process_is_left(runner, catalog, cold):
    """After success and after failure no rank is alive."""
    with closing(Runner(catalog, runner.settings)) as one:
        found = [
            one.measure(replace(parse_cell(DDP, catalog), faults=tuple(faults))) for faults in ([], [named("killed")])
        ]
    deadline = time.monotonic() + 30
    while _ranks_of(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert [one.outcome for one in found] == ["fits", "failed"]
    assert _ranks_of(os.getpid()) == []


def test_capacity_of_the_peak_fits_and_one_byte_less_does_not(measure, catalog):
    """The capacity is held at the allocation that crosses it: to the byte."""
    peak = measure(DDP).readings["peak_memory_bytes"].value
    outcomes = []
    for capacity in (peak, peak - 1):
        runner = Runner(catalog, Settings(steps=1, warmup=0, capacity_bytes=capacity))
        outcomes.append(runner.measure(parse_cell(DDP, catalog)))
        runner.close()

    assert [measurement.outcome for measurement in outcomes] == ["fits", "oom"]
    assert outcomes[1].failure.missing_bytes == 1
    assert "OutOfMemoryError" in outcomes[1].failure.message


def _ranks_of(pid: int) -> list[str]:
    """Processes forked by the rank servers of a process: a server is its child, a rank its grandchild."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if after_name[0] != "Z":
            parents[int(status.parent.name)] = int(after_name[1])
    servers = {child for child, parent in parents.items() if parent == pid}
    return [str(child) for child, parent in parents.items() if parent in servers]
