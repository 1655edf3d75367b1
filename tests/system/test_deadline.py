"""A limit of time ends whatever is waited for: commands, locks, leases, requests, servers and ranks."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.environments import bounded, lockfile
from perfsuite.environments.environments import Environment
from perfsuite.launch.leases import lease
from perfsuite.records.progress import Progress
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Runner, Settings
from perfsuite.run.sides import Side
from perfsuite.system.builds import kept
from perfsuite.system.deadline import OutOfTime, abandonable, check, left, let_finish, limit

HANGS = "perfsuite.rank.faults.ends:hangs"
DDP = "gpt2_tiny-ddp-cpu_x2"
FOREVER = 3600.0  # seconds; what lasts so long is ended, or the test never ends
SOON = 0.5


def test_without_a_limit_nothing_ends() -> None:
    """The default of every command."""
    check()

    assert left() == float("inf")


def test_a_limit_ends_with_its_block() -> None:
    """What it said names whose limit it was, and what comes after is free."""
    with limit(0, "the 2 min of --minutes"), pytest.raises(OutOfTime, match=r"^the 2 min of --minutes are used up$"):
        check()

    check()


@pytest.mark.parametrize(("outer", "inner"), [(0, FOREVER), (FOREVER, 0)])
def test_the_earlier_of_two_limits_counts(outer: float, inner: float) -> None:
    """Comparisons of times have one of their own, which cannot lengthen that of the command."""
    with limit(outer, "outer"), limit(inner, "inner"):
        assert left() == 0
        with pytest.raises(OutOfTime, match="outer" if outer == 0 else "inner"):
            check()


def test_a_patient_limit_lets_what_has_begun_come_to_its_end() -> None:
    """Such as a round of pairs, of which half would tell less than its cost. Nothing new begins, nor what
    would take longer than is left, and no other limit waits.
    """
    with limit(0.05, "the minute", patient=True):
        with let_finish():
            time.sleep(0.1)
            check()
        with pytest.raises(OutOfTime, match="the minute"), let_finish():
            pass
    with limit(SOON, "the minute", patient=True), pytest.raises(OutOfTime), let_finish(FOREVER):
        pass
    with limit(0.05, "the minute"), let_finish():
        time.sleep(0.1)
        with pytest.raises(OutOfTime):
            check()


def test_every_check_ticks() -> None:
    """So that there is progress to see whatever is waited for."""
    ticks: list[int] = []
    with limit(FOREVER, "", lambda: ticks.append(1)):
        check()
        check()

    assert ticks == [1, 1]


def test_a_thread_with_the_context_has_the_limit() -> None:
    """Both sides of a trial have a thread."""
    found: list[float] = []
    with limit(FOREVER, ""):
        thread = threading.Thread(target=copy_context().run, args=(lambda: found.append(left()),))
        thread.start()
        thread.join()

    assert 0 < found[0] <= FOREVER


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether it ends within a minute; SIGKILL takes a moment."""
    for _ in range(600):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


class Steps:
    """Watches launches until all ranks of one are in that step."""

    def __init__(self, number: int) -> None:
        self.number, self.reached = number, False

    def __call__(self, cell: object, progress: Sequence[Progress], seconds: float) -> None:
        self.reached = self.reached or all(rank.step >= self.number for rank in progress)

    def made(self) -> bool:
        return self.reached


def stop_when(ended: Callable[[], bool]) -> Callable[[], None]:
    """A tick that ends everything then."""

    def tick() -> None:
        if ended():
            stop()

    return tick


def test_a_command_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """Such as uv with the build of a package."""
    pids = tmp_path / "pids"
    script = f"sleep {FOREVER:.0f} & echo $! $$ > {pids}.part; mv {pids}.part {pids}; wait"
    with pytest.raises(OutOfTime), limit(FOREVER, "", stop_when(pids.exists)):
        bounded.run(["bash", "-c", script])

    assert all(map(gone, map(int, pids.read_text().split())))


def stop() -> None:
    """What a limit that is used up does, once what is to be ended is there."""
    raise OutOfTime("the test")


def test_no_command_starts_after_the_limit(tmp_path: Path) -> None:
    """It would leave something half done."""
    with limit(0, ""), pytest.raises(OutOfTime):
        bounded.run(["touch", str(tmp_path / "file")])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [None, FOREVER])
def test_a_command_that_ends_in_time_is_as_ever(seconds: float | None) -> None:
    """Output, exit code and variables; with a limit it has a session of its own."""
    script = "import os, sys; print(os.environ['MINE'], os.getsid(0)); print('bad', file=sys.stderr); sys.exit(3)"
    command, variables = [sys.executable, "-c", script], os.environ | {"MINE": "yes"}
    if seconds is None:
        done = bounded.run(command, variables)
    else:
        with limit(seconds, ""):
            done = bounded.run(command, variables)
    word, session = done.stdout.split()

    assert (word, done.stderr, done.returncode) == ("yes", "bad\n", 3)
    assert (int(session) == os.getsid(0)) == (seconds is None)


def test_the_lock_of_an_environment_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process builds it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reached = []

    def build(part: Path) -> None:
        with limit(SOON, ""), pytest.raises(OutOfTime):
            kept("environments", ["same"], lambda _: None)
        reached.append(part)
        part.mkdir()

    folder = kept("environments", ["same"], build)

    assert folder.is_dir() and len(reached) == 1


def test_an_environment_that_was_ended_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the first attempt stays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def too_long(part: Path) -> None:
        part.mkdir()
        bounded.output(["sleep", f"{FOREVER:.0f}"])

    with limit(SOON, ""), pytest.raises(OutOfTime):
        kept("environments", ["same"], too_long)
    folder = kept("environments", ["same"], lambda part: part.mkdir())

    assert [one.name for one in folder.parent.iterdir() if one.is_dir()] == [folder.name]


def test_a_lock_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv may wait for a slow index."""
    monkeypatch.setattr(lockfile, "uv_command", lambda: ["bash", "-c", f"sleep {FOREVER:.0f}"])

    with limit(SOON, ""), pytest.raises(OutOfTime):
        lockfile.lock(["six"], "python", None)


def test_a_lease_is_not_waited_for_without_end() -> None:
    """The one that holds it is not disturbed, and the place in the queue is given back."""
    with lease([], 1), limit(SOON, ""), pytest.raises(OutOfTime), lease([], 1):
        pass
    with lease([], 1), limit(FOREVER, ""):
        check()


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """What a server that does not answer waits for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_request_that_nobody_answers_is_left_behind(silence: threading.Event) -> None:
    """Its thread does not keep the process from ending."""
    with limit(SOON, ""), pytest.raises(OutOfTime):
        abandonable(silence.wait)


def test_a_request_has_its_answer_and_its_error() -> None:
    """With and without a limit."""
    for seconds in (None, FOREVER):
        with limit(seconds or FOREVER, ""):
            assert abandonable(lambda: 7) == 7
            with pytest.raises(ValueError, match="mine"):
                abandonable(lambda: int("mine"))
    assert abandonable(lambda: 7) == 7


def children(pid: int) -> list[int]:
    """The processes whose parent this one is."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            words = (one / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid and words[0] != "Z":
            found.append(int(one.name))
    return found


def test_a_launch_ends_and_leaves_no_rank(runner: Runner, catalog: Catalog, cold: None) -> None:
    """Ranks that hang: the next launch in the same server is as ever."""
    patient = replace(runner.settings, step_timeout=FOREVER, start_timeout=FOREVER)
    one = Runner(catalog, patient)
    cell, ranks = parse_cell(DDP, catalog), list[int]()

    def watch(cell: object, progress: list[Progress], seconds: float) -> None:
        (servers,) = one._launcher._servers.values()
        ranks[:] = children(servers[0]._process.pid)  # type: ignore[attr-defined]
        if len(ranks) == 2 and all(rank.step for rank in progress):
            stop()

    with pytest.raises(OutOfTime):
        one.measure(replace(cell, faults=(HANGS,)), watch)
    assert len(ranks) == 2 and all(map(gone, ranks))
    assert one.measure(cell).outcome == "fits"
    one.close()


def test_a_launch_that_hangs_is_ended_by_the_limit(catalog: Catalog, runner: Runner) -> None:
    """Whatever its own timeouts are."""
    one = Runner(catalog, replace(runner.settings, step_timeout=FOREVER, start_timeout=FOREVER))
    steps = Steps(2)  # in which rank 1 hangs
    with limit(FOREVER, "the test", stop_when(steps.made)), pytest.raises(OutOfTime):
        one.measure(replace(parse_cell(DDP, catalog), faults=(HANGS,)), steps)
    one.close()


def test_a_server_that_does_not_start_is_ended(tmp_path: Path, catalog: Catalog) -> None:
    """Such as one that compiles an extension, with its compiler."""
    python, pids = tmp_path / "python", tmp_path / "pids"
    script = f"sleep {FOREVER:.0f} & echo $! $$ > {pids}.part; mv {pids}.part {pids}; wait"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    one = Runner(catalog, Settings(start_timeout=FOREVER), Environment(python=str(python)))
    with limit(FOREVER, "", stop_when(pids.exists)), pytest.raises(OutOfTime):
        one.measure(parse_cell(DDP, catalog))
    one.close()

    assert all(map(gone, map(int, pids.read_text().split())))


@pytest.mark.parametrize("interleave", ["steps", "launches"])
def test_a_comparison_ends(interleave: str, catalog: Catalog, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of it, whichever alternates: no rank server is left."""
    made: list[Runner] = []
    monkeypatch.setattr("perfsuite.run.question.Runner", lambda *arguments: made.append(Runner(*arguments)) or made[-1])
    steps = Steps(20)
    here, how = Side("here", catalog), Measuring(catalog, replace(runner.settings, steps=500), Path("/nowhere"), steps)
    question = Question(how, here, here, [DDP], step_seconds={DDP: 1e-3}, interleave=interleave)
    with limit(FOREVER, "the limit", stop_when(steps.made)):
        question.compare_times()

    assert (question.unfinished != "", len(question.pairs[DDP])) == (True, 0)
    assert len(made) == 2
    assert not any(one._launcher._servers for one in made)
