"""Blame, on folders as dead ranks leave them: the rank that failed first, how it failed, and its last lines."""

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perfsuite.launch.blame import TAIL_LINES, blame_exit, blame_hang, last_lines
from perfsuite.rank.turns import turns_of
from perfsuite.records import codec
from perfsuite.records.failure import Failure, FailureKind
from perfsuite.records.job import Turns
from perfsuite.records.progress import Progress
from perfsuite.records.step_kinds import StepKind

RAISED = 1 << 8  # the wait status of exit(1)


def leave_failure(folder: Path, rank: int, message: str, *, age: int, kind: FailureKind = "raised") -> None:
    """A rank's failure file, written ``age`` nanoseconds ago, and its log."""
    path = folder / f"rank{rank}.failure.json"
    codec.write(path, Failure(kind=kind, rank=rank, message=message))
    written = 10**18 - age
    os.utime(path, ns=(written, written))
    (folder / f"rank{rank}.log").write_text(f"last words of {rank}\n")


def test_killed_beats_raised(tmp_path: Path) -> None:
    """A rank that a signal ended is to blame, though its sibling's failure is written."""
    leave_failure(tmp_path, 0, "Connection closed by peer", age=0)
    (tmp_path / "rank1.log").write_text("loading\n")
    failure = blame_exit(tmp_path, 2, {1: signal.SIGKILL})

    assert (failure.kind, failure.rank, failure.tail) == ("killed", 1, "loading")
    assert failure.message == "Rank 1 was killed by SIGKILL, and no cgroup says whether memory ran out."


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_only_sigkill_hints_at_memory(tmp_path: Path, number: signal.Signals) -> None:
    """Another signal is named and nothing is guessed about memory."""
    failure = blame_exit(tmp_path, 2, {0: number})

    assert failure.message == f"Rank 0 was killed by {number.name}."


def test_a_core_dump_is_a_kill(tmp_path: Path) -> None:
    """The kernel's core-dump bit does not hide the signal."""
    assert blame_exit(tmp_path, 2, {0: signal.SIGSEGV | 0x80}).message == "Rank 0 was killed by SIGSEGV."


def test_a_real_time_signal(tmp_path: Path) -> None:
    """A signal that Python has no name for is still a kill, not an error of ours."""
    assert blame_exit(tmp_path, 2, {0: signal.SIGRTMIN + 3}).kind == "killed"


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_the_earliest_failure_wins(tmp_path: Path, ended: int) -> None:
    """Of the ranks that raised, the one that wrote first is to blame, whichever ended first."""
    leave_failure(tmp_path, 0, "Connection closed by peer", age=0)
    leave_failure(tmp_path, 1, "CUDA out of memory", age=1, kind="oom")
    leave_failure(tmp_path, 2, "Connection reset", age=0)
    failure = blame_exit(tmp_path, 3, {ended: RAISED})

    assert (failure.kind, failure.rank) == ("oom", 1)
    assert failure.message == "Rank 1: CUDA out of memory"
    assert failure.tail == "last words of 1"


@pytest.mark.parametrize("code", [1, 3, 70])
def test_silent_exit(tmp_path: Path, code: int) -> None:
    """A rank that leaves without a word is blamed with its exit status."""
    (tmp_path / "rank1.log").write_text("step 3\n")
    failure = blame_exit(tmp_path, 2, {1: code << 8})

    assert (failure.kind, failure.rank, failure.tail) == ("raised", 1, "step 3")
    assert failure.message == f"Rank 1 exited with status {code} and no message."


def test_malformed_failure(tmp_path: Path) -> None:
    """A failure file that cannot be read still blames its rank, and says so."""
    (tmp_path / "rank1.failure.json").write_text('{"kind": "rai')
    failure = blame_exit(tmp_path, 2, {1: RAISED})

    assert (failure.kind, failure.rank) == ("raised", 1)
    assert "is not a failure" in failure.message


def test_out_of_memory_keeps_what_is_missing(tmp_path: Path) -> None:
    """The bytes that were missing reach the report."""
    path = tmp_path / "rank0.failure.json"
    codec.write(path, Failure(kind="oom", rank=0, message="full", missing_bytes=1024))
    failure = blame_exit(tmp_path, 1, {0: RAISED})

    assert failure.missing_bytes == 1024


def ask_nobody() -> None:
    """No rank answers."""


def test_a_killed_rank_is_blamed_before_one_that_raised(tmp_path: Path) -> None:
    """Two ranks are reported at once: the one that a signal killed did not die of the other's exception."""
    leave_failure(tmp_path, 0, "Connection closed by peer", age=0)

    assert blame_exit(tmp_path, 2, {0: RAISED, 1: signal.SIGKILL}).rank == 1


def test_an_abort_yields_to_the_rank_that_raised(tmp_path: Path) -> None:
    """NCCL's watchdog aborts a rank whose sibling has gone; the sibling is to blame."""
    leave_failure(tmp_path, 1, "boom", age=0)

    assert blame_exit(tmp_path, 2, {0: signal.SIGABRT}).rank == 1


def test_a_hang_blames_the_fewest_marks(tmp_path: Path) -> None:
    """The rank that came least far holds up the others."""
    seen = [Progress(9, 2, "backward"), Progress(7, 2, "batch"), Progress(9, 2, "backward")]
    failure = blame_hang(tmp_path, range(3), seen, 1.5, ask_nobody)

    assert (failure.kind, failure.rank) == ("hung", 1)
    assert failure.message.startswith("Rank 1 hangs in batch of step 2 for more than 1.5 s.")


def test_a_hang_of_several(tmp_path: Path) -> None:
    """Ranks that came equally far are all named, and the first one's output shown."""
    (tmp_path / "rank0.log").write_text("stack of 0\n")
    seen = [Progress(7, 2, "batch"), Progress(9, 2, "backward"), Progress(7, 2, "batch")]
    failure = blame_hang(tmp_path, range(3), seen, 120, ask_nobody)

    assert failure.message.startswith("Ranks 0, 2 hang in batch of step 2 for more than 120 s.")
    assert (failure.rank, failure.tail) == (0, "stack of 0")


def test_a_hang_passes_over_ranks_that_have_ended(tmp_path: Path) -> None:
    """Only ranks that run can hang."""
    seen = [Progress(1, 0, "join"), Progress(9, 2, "end"), Progress(8, 2, "optimizer")]
    failure = blame_hang(tmp_path, [1, 2], seen, 120, ask_nobody)

    assert failure.rank == 2


def test_a_hang_asks_for_the_stack(tmp_path: Path) -> None:
    """A rank that hangs writes where it is, in time for the report to show it."""
    code = (
        "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR1)\nprint('ready', flush=True)\n"
        "def all_reduce_that_hangs():\n    time.sleep(60)\nall_reduce_that_hangs()"
    )
    with (tmp_path / "rank0.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log)
    deadline = time.monotonic() + 30
    while not (tmp_path / "rank0.log").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)

    def ask() -> None:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)

    failure = blame_hang(tmp_path, [0], [Progress(3, 1, "forward")], 120, ask)
    process.kill()
    process.wait()

    assert "in all_reduce_that_hangs" in failure.tail


def test_a_rank_that_waits_for_its_turn_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits because another rank hangs, at the same point of its step. Its stack is a real one."""
    pipes = [str(tmp_path / name) for name in ("in", "out")]
    for pipe in pipes:
        os.mkfifo(pipe)

    class Polled(BaseException):
        """Ends the wait, once its stack is written."""

    class Poller:
        def register(self, end: object, events: int) -> None: ...

        def poll(self, milliseconds: float) -> None:
            with (tmp_path / "rank1.log").open("w") as log:
                traceback.print_list(reversed(traceback.extract_stack()[:-1]), log)  # as faulthandler: innermost first
            raise Polled

    class Session:
        rank, world_size = 0, 1
        job = SimpleNamespace(turns=Turns(inboxes=pipes[:1], outboxes=pipes[1:], first=False), device="cuda")

        def synchronize(self) -> None: ...

    monkeypatch.setattr(select, "poll", Poller)
    with pytest.raises(Polled):
        turns_of(cast("Any", Session()))(StepKind.TIMED)
    waiting = (tmp_path / "rank1.log").read_text()
    (tmp_path / "rank1.log").write_text("")

    def ask() -> None:
        (tmp_path / "rank0.log").write_text('  File "script.py", line 1 in sleep\n')
        (tmp_path / "rank1.log").write_text(waiting)

    failure = blame_hang(tmp_path, range(2), [Progress(7, 6, "end")] * 2, 5, ask)

    assert "waits.py" in waiting
    assert failure.message.startswith("Rank 0 hangs in end of step 6")


def test_last_lines(tmp_path: Path) -> None:
    """The tail is the last lines of a log, whatever bytes are in it; a missing log is empty."""
    (tmp_path / "rank0.log").write_bytes(b"".join(b"line %d \xff\n" % number for number in range(100)))
    lines = last_lines(tmp_path, 0).splitlines()

    assert [line.split()[1] for line in lines] == [str(number) for number in range(100 - TAIL_LINES, 100)]
    assert last_lines(tmp_path, 1) == ""
