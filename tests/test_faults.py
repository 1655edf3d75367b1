"""Faults put into real ranks on purpose: each is red, and the blame is right."""

import os
import time
from pathlib import Path

import pytest

from perfsuite.cell import parse_cell
from perfsuite.runner import Runner, Settings

DDP = "gpt2_tiny-ddp-cpu_x2"
FAULTS = [
    ("killed", "killed", 1, "Rank 1 was killed by SIGKILL"),
    ("segfault", "killed", 1, "Rank 1 was killed by SIGSEGV"),
    ("raises", "raised", 1, "Rank 1: ValueError in forward of step 2: a fault put here on purpose"),
    ("exits", "raised", 1, "Rank 1 exited with status 3 and said nothing"),
    ("nan", "raised", None, " is nan in step 2"),
    ("backward_clock", "raised", None, "The clock went from 42 to 42 ns"),
    ("leak", "raised", None, "Memory leaks: "),
    ("unwrapped", "raised", None, "ddp must run in DistributedDataParallel, this is GPT2LMHeadModel"),
    ("no_reduction", "raised", None, "gradients are not reduced over the ranks"),
    ("missing_metric", "result", None, "step_time_seconds"),
    ("torn_result", "result", 1, "Rank 1 ended well but left no whole result"),
]


@pytest.mark.parametrize(("fault", "kind", "rank", "message"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_fault_is_red_and_blamed(measure, fault, kind, rank, message):
    """A fault in a rank makes the cell fail, and the failure names the rank that failed first and why."""
    measurement = measure(DDP, fault)

    assert measurement.outcome == "failed"
    assert measurement.failure.kind == kind
    assert message in measurement.failure.message
    assert rank is None or measurement.failure.rank == rank


@pytest.fixture(scope="module")
def impatient(catalog):
    """Measures a cell with a fault, and waits five seconds for a rank that does not move."""
    settings = Settings(steps=3, warmup=1, step_timeout=5.0, import_path=(str(Path(__file__).parent),))
    runner = Runner(catalog, settings)
    yield lambda fault: runner.measure(parse_cell(DDP, catalog), faults=[f"faults:{fault}"])
    runner.close()


@pytest.mark.parametrize("fault", ["hangs", "stopped"])
def test_a_rank_that_hangs_is_blamed(impatient, fault):
    """A rank that sleeps for ever, or is stopped, is red, and not the sibling that waits for it."""
    failure = impatient(fault).failure

    assert (failure.kind, failure.rank) == ("hung", 1)
    assert "Rank 1 hangs in forward of step 2 for more than 5 s" in failure.message
    assert ("does not even answer a signal" in failure.message) == (fault == "stopped")


def test_stack_of_a_hanging_rank_is_shown(impatient):
    """The last lines of a rank that hangs say where it is."""
    assert "faults.py" in impatient("hangs").failure.tail


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


def test_no_process_is_left(measure):
    """After success and after failure no rank is alive."""
    measure(DDP)
    measure(DDP, "killed")
    deadline = time.monotonic() + 30
    while _ranks_of(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)

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
