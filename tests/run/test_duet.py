"""Two launches whose steps alternate: which of them runs when, and what becomes of one whose other side ends."""

import dataclasses
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from perfsuite.catalog.cell import parse_cell, parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.commands import ab
from perfsuite.cli.main import main
from perfsuite.compare.merge_launches import merge
from perfsuite.errors import UsageError
from perfsuite.rank.turns import cores_of
from perfsuite.run.duet import measure_in_turns
from perfsuite.run.pairs import steps_of_turn
from perfsuite.run.question import Question
from perfsuite.run.runner import Runner
from perfsuite.system.paths import temporary_folder

CELL = "gpt2_tiny-ddp-cpu_x2"


def with_faults(cells, faults):
    """The cell of each side, with the side's faults."""
    return [dataclasses.replace(cell, faults=tuple(own)) for cell, own in zip(cells, faults, strict=True)]


@pytest.fixture(scope="module")
def in_turns(catalog, runner):
    """``in_turns([fault of A], [fault of B], first=0)`` launches the cell twice at once."""
    runners = (runner, Runner(catalog, runner.settings))
    cells = (parse_cell(CELL, catalog),) * 2
    yield lambda *faults, first=0: measure_in_turns(runners, with_faults(cells, faults), first, lambda *_: None)
    runners[1].close()


def left(name):
    """The lines of the file that a fault of a rank has just written among its temporary files."""
    return max(temporary_folder().rglob(name), key=lambda path: path.stat().st_mtime_ns).read_text().splitlines()


def timed_steps(name, settings):
    """When the first rank of that side began and the last one ended each timed step, which the counted one follows."""
    ranks = []
    for rank in range(parse_hardware(CELL.split("-")[2], Catalog()).ranks):
        lines = left(f"moments-{name}{rank}")
        ranks.append([tuple(map(float, line.split())) for line in lines][-1 - settings.steps : -1])
    return [(min(begin for begin, _ in step), max(end for _, end in step)) for step in zip(*ranks, strict=True)]


@pytest.mark.parametrize(("first", "turn"), [(0, 1), (1, 1), (0, 2)])
def test_timed_steps_alternate(in_turns, runner, monkeypatch, first, turn):
    """No rank begins before all of the other side's have ended their turn, and the side that the lot names begins."""
    monkeypatch.setattr(runner, "settings", dataclasses.replace(runner.settings, turn=turn))
    both = in_turns(["faults:moments_a"], ["faults:moments_b"], first=first)
    a, b = (timed_steps(name, runner.settings) for name in "ab")
    turns = [[steps[at : at + turn] for at in range(0, len(steps), turn)] for steps in ((a, b), (b, a))[first]]
    order = [step for pair in zip(*turns, strict=True) for steps in pair for step in steps]

    assert [one.outcome for one in both] == ["fits", "fits"]
    assert all(before[1] <= after[0] for before, after in pairwise(order))


def test_ranks_of_one_number_take_turns_on_one_core(in_turns):
    """Cores are not alike: neither side may have the better ones."""
    in_turns(["faults:cores_a"], ["faults:cores_b"])
    a, b = ([left(f"cores-{name}{rank}") for rank in (0, 1)] for name in "ab")
    cores = sorted(os.sched_getaffinity(0))
    expected = [str([cores[rank % len(cores)]]) for rank in (0, 1)]

    assert [rank[-1] for rank in a] == [rank[-1] for rank in b] == expected
    assert a[0][0] == str(cores)  # until its turns begin a rank may go where it likes


def test_exact_metrics_are_those_of_a_launch_alone(in_turns, measure):
    """Waiting for a turn costs no memory, no operator and no message."""
    alone = measure(CELL).readings
    both = [one.readings for one in in_turns((), ())]

    for name in ("peak_memory_bytes", "operators", "communication_bytes", "loss"):
        assert [one[name].samples or one[name].value for one in both] == [alone[name].samples or alone[name].value] * 2


@pytest.mark.parametrize("fault", ["killed", "no_result"])
def test_a_side_that_fails_leaves_the_other_to_end_alone(in_turns, fault):
    """It neither hangs nor fails with it."""
    module = "falsehoods" if fault == "no_result" else "faults"
    a, b = in_turns([f"perfsuite.features.prove.selftest.{module}:{fault}"], ())

    assert (a.outcome, b.outcome) == ("failed", "fits")


@pytest.fixture
def impatient(catalog, runner):
    """The same, where a rank may go five seconds without progress; the first argument is the cell."""
    settings = dataclasses.replace(runner.settings, step_timeout=5.0)
    runners = (Runner(catalog, settings), Runner(catalog, settings))

    def in_turns(cell, *faults):
        return measure_in_turns(runners, with_faults((parse_cell(cell, catalog),) * 2, faults), 0, lambda *_: None)

    yield in_turns
    for one in runners:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "fault"), [("gpt2_tiny-single-cpu_x1", "dawdles"), ("gpt2_tiny-ddp-cpu_x3", "late")])
def test_a_side_that_waits_long_does_not_hang(impatient, cell, fault):
    """Every rank says that it waits, while the other side takes longer than a rank may without progress."""
    both = impatient(cell, ["faults:" + fault], ())

    assert [one.outcome for one in both] == ["fits", "fits"]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in", "after"])
def test_a_hang_between_turns_is_found_and_its_rank_blamed(impatient, when):
    """Though its sibling waited often before, or waits for a turn that the hang keeps from coming."""
    a, b = impatient(CELL, [f"faults:hangs_{when}_a_timed_step"], ["faults:late"])

    assert (a.failure.kind, a.failure.rank) == ("hung", 0)
    assert "Rank 0 hangs in" in a.failure.message
    assert b.outcome == "fits"


@pytest.mark.parametrize(("hardware", "expected"), [("cpu_x1", "steps"), ("h100_x1", "launches")])
def test_steps_alternate_on_cpus(monkeypatch, capsys, hardware, expected):
    """Both sides' memory at once is nothing that a GPU has to spare."""
    heard = []

    def design(**facts):
        heard.append(facts["interleave"])
        raise UsageError("heard")

    monkeypatch.setattr("perfsuite.run.question.PairDesign", design)
    monkeypatch.setattr(Question, "launch_once", lambda *_: None)
    monkeypatch.setattr(Question, "_measured_step", lambda *_: 0.1)
    monkeypatch.setattr(ab, "require_here", lambda *_: None)
    main(["ab", "--a", "single", "--b", "single+ckpt", "--model", "gpt2_tiny", "--hardware", hardware])

    assert heard == [expected]


def test_a_launch_that_only_times_is_merged_with_one_that_counts(runner, catalog):
    """Its times are two launches', and everything else is the first one's."""
    cell = parse_cell("gpt2_tiny-ddp-cpu_x2", catalog)
    metrics = catalog.metrics("training")
    counted, timed = runner.measure(cell), runner.measure(cell, times_only=True)

    expected = {metric.name for metric in metrics if metric.is_timed and metric.name in counted.readings}
    assert timed.readings.keys() == expected > {"step_time_seconds", "forward_seconds"}
    assert not counted.times_only
    both = merge([counted, timed], metrics)
    assert both.outcome == "fits"
    assert both.readings["peak_memory_bytes"] == counted.readings["peak_memory_bytes"]
    assert [len(steps) for steps in both.by_launch("step_time_seconds")] == [runner.settings.steps] * 2


@pytest.mark.parametrize(
    ("rank", "threads", "cores", "own"),
    [
        pytest.param(1, 1, [0, 1], {1}, id="a rank with one thread"),
        pytest.param(2, 1, [0, 1], {0}, id="more ranks than cores"),
        pytest.param(0, 2, [4, 6], {4, 6}, id="a script with two threads"),
        pytest.param(1, 2, [0, 1, 2, 3], {2, 3}, id="two such ranks"),
        pytest.param(0, 8, [0, 1], {0, 1}, id="more threads than cores"),
    ],
)
def test_a_rank_stays_on_as_many_cores_as_compute(rank, threads, cores, own):
    """Threads that wait for each other on one core make a step's time a matter of luck."""
    assert cores_of(rank, threads, cores) == own


STEPS_THAT_FREE = """
import ctypes, resource
from perfsuite.rank.turns import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.mallopt(-3, 128 << 10)  # as in a process in which nothing large was freed yet
def step():
    blocks = [libc.malloc(size) for size in (1 << 20, 24 << 20, 256 << 10)]
    for block in blocks:
        libc.memset(block, 1, 256 << 10)
        libc.free(block)
def faults():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults())
keep_freed_memory()
print(faults())
"""


def test_a_step_in_turns_gets_no_page_anew():
    """How many it gets depends on where the heap ends: equal processes differed by a fifth."""
    said = subprocess.run([sys.executable, "-c", STEPS_THAT_FREE], capture_output=True, text=True, check=True)
    usual, kept = map(int, said.stdout.split())
    assert usual > 20 * 3 * 10  # a page or more of each block in each step
    assert kept < 20


@pytest.mark.parametrize(
    ("step_seconds", "steps", "turn"),
    [(0.01, 250, 15), (0.001, 500, 83), (0.001, 100, 16), (0.04, 25, 4), (0.3, 25, 1), (None, 10, 1)],
)
def test_a_turn_is_long_enough_for_caches_and_short_enough_for_slow_spells(step_seconds, steps, turn):
    """Short steps have several in a turn, and a launch six turns."""
    assert steps_of_turn(step_seconds, steps) == turn
