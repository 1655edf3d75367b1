"""Two cells in turns: what a rank has started does not work while the other side does."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfsuite.rank.turns import standing_still, started_by

WORKS = "while True: pass"
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', '{WORKS}'])"


@contextlib.contextmanager
def running(code: str) -> Iterator[int]:
    """A process with that code; it is killed, with what it has started."""
    process = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    try:
        yield process.pid
    finally:
        subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=True)
        process.wait()


def seconds_of(process: int) -> float:
    """The processor time that it has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def state_of(process: int) -> str:
    """T is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_what_a_rank_has_started_stands_still() -> None:
    """It takes no processor from the other side, and loads no batch in advance."""
    with running(WORKS) as process:
        wait(lambda: seconds_of(process) > 0.05)
        with standing_still({process}):
            time.sleep(0.05)
            before = seconds_of(process)
            time.sleep(0.3)
            assert seconds_of(process) == before
        wait(lambda: seconds_of(process) > before)
        assert seconds_of(process) > before


def test_the_processes_of_a_rank() -> None:
    """Children of children too; not another rank, which has a turn of its own."""
    with running(STARTS) as process:
        wait(lambda: started_by(process, set()))
        [child] = started_by(process, set())

        assert started_by(process, {child}) == set()


def test_a_process_that_has_ended_is_no_error() -> None:
    """A worker may end at any time."""
    with running("pass") as process:
        time.sleep(0.1)
    with standing_still({process}):
        assert started_by(process, set()) == set()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_they_go_on_after_an_error(error: type[BaseException]) -> None:
    """The rank may have been told to end."""
    with running(WORKS) as process:
        with pytest.raises(error), standing_still({process}):
            raise error
        before = seconds_of(process)
        wait(lambda: seconds_of(process) > before)
        assert seconds_of(process) > before


def test_they_go_on_if_the_rank_is_told_to_end() -> None:
    """Else they would stay for ever: a worker looks itself whether its rank is there."""
    waits = (
        "import sys, time; from perfsuite.rank.turns import standing_still\nwith standing_still({%d}): time.sleep(60)"
    )
    with running(WORKS) as process:
        rank = subprocess.Popen([sys.executable, "-c", waits % process])
        wait(lambda: state_of(process) == "T")
        assert state_of(process) == "T"
        rank.terminate()

        assert rank.wait() == -signal.SIGTERM
        assert state_of(process) != "T"
