"""Leases, between real processes: what one holds no other gets, and what a dead one held is free."""

import contextlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perfsuite.launch import leases
from perfsuite.launch.leases import lease
from perfsuite.system.paths import runtime_folder

# Holds a lease and says which; ends when its standard input does.
HOLD = """
import ast, sys
from perfsuite.launch.leases import lease
with lease(ast.literal_eval(sys.argv[1]), int(sys.argv[2])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""

# Writes begin and end of each of its turns with the CPU into the shared file.
TAKE_TURNS = """
import sys, time
from perfsuite.launch.leases import lease
for turn in range(15):
    with lease([], 1):
        with open(sys.argv[1], "a") as file:
            print("begin", sys.argv[2], file=file, flush=True)
            time.sleep(0.005)
            print("end", sys.argv[2], file=file, flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of this test alone: neither cells that run here now nor other tests hold any."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@contextlib.contextmanager
def holder(candidates: list[int], count: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that waits for a lease and holds it."""
    command = [sys.executable, "-c", HOLD, str(candidates), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def held_by(process: subprocess.Popen[str]) -> str:
    """What the process holds, once it does."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_one_at_a_time(tmp_path: Path) -> None:
    """Two processes never hold the CPU at once, and both get their turns."""
    log = tmp_path / "log"
    takers = [subprocess.Popen([sys.executable, "-c", TAKE_TURNS, str(log), name]) for name in "ab"]
    for taker in takers:
        assert taker.wait(timeout=60) == 0
    lines = log.read_text().split("\n")[:-1]

    assert all(begin == end.replace("end", "begin") for begin, end in zip(lines[::2], lines[1::2], strict=True))
    assert sorted(lines[::2]) == ["begin a"] * 15 + ["begin b"] * 15


def test_a_killed_holder_frees() -> None:
    """The kernel frees what a killed process held, so that no process waits for it."""
    with holder([], 1) as first, holder([], 1) as second:
        assert first.stdout is not None
        assert second.stdout is not None
        processes = {first.stdout: first, second.stdout: second}
        ready, _, _ = select.select(list(processes), [], [], 30)
        winner = processes[ready[0]]
        waiter = second if winner is first else first
        still, _, _ = select.select([out for out in processes if processes[out] is waiter], [], [], 0.3)
        winner.send_signal(signal.SIGKILL)

        assert not still
        assert held_by(waiter) == "[]"


def test_a_lease_ends_with_its_block() -> None:
    """After the block, also one that raised, the devices are free."""
    with pytest.raises(ZeroDivisionError), lease([0], 1):
        raise ZeroDivisionError
    with holder([0], 1) as other:
        assert held_by(other) == "[0]"


def test_two_of_three() -> None:
    """Two cells share a machine's three GPUs, and neither its GPU with the other."""
    with lease([0, 1, 2], 2) as ours, holder([0, 1, 2], 1) as other:
        assert ours == [0, 1]
        assert held_by(other) == "[2]"


def test_neighbours_before_leftovers() -> None:
    """Next to a cell on the first GPU, one of two takes the next whole pair and not a GPU of each."""
    with lease([0, 1, 2, 3], 1), holder([0, 1, 2, 3], 2) as other:
        assert held_by(other) == "[2, 3]"


def test_leftovers_before_waiting() -> None:
    """Where no pair is free, a cell takes one GPU of each."""
    with lease([0, 1, 2, 3], 1), lease([2], 1), holder([0, 1, 2, 3], 2) as other:
        assert held_by(other) == "[1, 3]"


def test_too_few_are_left() -> None:
    """A cell that finds too few free GPUs holds none while it waits, so that a smaller one goes ahead."""
    with lease([0, 1, 2], 2), holder([0, 1, 2], 2) as waiter:
        time.sleep(0.3)
        with holder([2], 1) as small:
            assert held_by(small) == "[2]"
        assert waiter.poll() is None


def test_gpus_are_not_the_cpu() -> None:
    """A cell on GPUs and a cell on the CPU do not wait for each other."""
    with lease([0], 1) as gpus, holder([], 1) as other:
        assert gpus == [0]
        assert held_by(other) == "[]"


def test_more_than_there_are() -> None:
    """A lease that can never be had is an error at once, not a wait for ever."""
    with holder([0, 1], 3) as process:
        assert process.wait(timeout=5) != 0


def test_who_came_first_is_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 random schedules no device is held twice, and nobody is passed, however many devices somebody needs."""
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.0005)
    served, held, chance, find = list[int](), list[int](), random.Random(0), leases._first_free
    threads: dict[int, int] = {}

    def first_free(*arguments: Any) -> list[str]:
        """The order in which they are served."""
        if got := find(*arguments):
            served.append(int(threading.current_thread().name))
        return got

    monkeypatch.setattr(leases, "_first_free", first_free)

    def work(number: int, devices: list[int], count: int, seconds: float) -> None:
        threading.current_thread().name = str(number)
        threads[number] = threading.get_native_id()
        with lease(devices, count) as got:
            assert not set(got) & set(held), (got, held)
            held.extend(got)
            time.sleep(seconds)
            for one in got:
                held.remove(one)

    for _ in range(80):
        served.clear()
        threads.clear()
        devices = list(range(chance.choice((2, 4, 8))))
        with ThreadPoolExecutor(6) as pool:
            runs = []
            for number in range(6):
                wish = chance.randint(1, len(devices)), chance.uniform(0, 0.003)
                runs.append(pool.submit(work, number, devices, *wish))
                wait_for(lambda: number in served or is_queued(threads.get(number, 0)))  # noqa: B023
            for run in runs:
                run.result(timeout=60)

        assert served == sorted(served)


def is_queued(owner: int) -> bool:
    """Whether a process or thread has a place in a queue."""
    folder = runtime_folder()
    return bool(list(folder.glob(f"queue-*-{owner}")))


def wait_for(what: Callable[[], bool]) -> None:
    """Raises AssertionError after ten seconds."""
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def test_a_large_cell_waits_for_those_before_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten cells of one GPU and one of four, by four workers: none of the small ones that came later is served first."""
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.001)
    served: list[str] = []

    def work(name: str) -> None:
        with lease([0, 1, 2, 3], 4 if name == "large" else 1):
            served.append(name)
            time.sleep(0.02)

    names = [*(f"small{number}" for number in range(4)), "large", *(f"small{number}" for number in range(4, 10))]
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, names))

    assert served.index("large") <= 4 + 3  # four before it, and at most the three that its worker's neighbours began


def test_an_island_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that NVLink connects, although their numbers are no neighbours; without a free island, any two."""
    with lease([0, 1, 2, 3], 2, [[0, 2], [1, 3]]) as first:
        assert first == [0, 2]
        with lease([0, 1, 2, 3], 1, [[0, 2], [1, 3]]) as one:
            assert one == [1]


def test_a_dead_place_in_the_queue_is_passed() -> None:
    """A process that is killed while it waits holds nobody up."""
    with holder([], 1) as first:
        held_by(first)
        with holder([], 1) as second:
            wait_for(lambda: is_queued(second.pid))
            second.kill()
            second.wait()
        first.kill()
        first.wait()
        with lease([], 1) as devices:
            assert devices == []


def test_a_run_that_has_ended_hears_of_no_wait(pytester: pytest.Pytester) -> None:
    """Its terminal is closed: a later run of the same process would fail by a line that it writes there."""
    before = leases._HEARS.get()
    pytester.runpytest_inprocess("--perf", "--collect-only", "-p", "no:cacheprovider")

    assert leases._HEARS.get() is before
