"""Two cells that are measured in turns of a few steps, so that the machine's state affects both alike.

Every rank has a named pipe. A rank that is done with the steps of its turn writes its number into the pipes of all
ranks of the other side, then waits until all of those have written theirs into its own. So no rank begins while one of
the other side still computes, and no side needs a barrier between its steps, which takes longer than the pipes. If one
side has ended, the other continues alone.

While a side waits, the processes that its ranks have started stand still: workers of its DataLoader would load the next
batches for nothing, and take the cores of the other side.
"""

import contextlib
import ctypes
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfsuite.rank.process_group import as_batch
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.session import Session
from perfsuite.records.job import GONE, PID, Turns
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.waits import wait_readable

TELL_SECONDS = 1.0  # how often a rank that waits for its turn reports that it does not hang
SCRIPT = "PERFSUITE_SCRIPT"  # the variable with the folder of a script's cell
MOST_BYTES = 65536  # the capacity of a pipe
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MAPPED, KEPT = 32 << 20, 1 << 30  # bytes: glibc's own largest threshold, and more than a step frees there at once


def turns_of(session: Session) -> Callable[[StepKind], None]:
    """The function that every rank calls before each step with its kind; it returns when it is this cell's turn."""
    return _Taker(session, session.job.turns).take if session.job.turns else lambda kind: None


def align(session: Session) -> None:
    """All ranks continue together."""
    import torch.distributed as dist

    if session.world_size > 1 and dist.is_initialized():
        dist.barrier()


def cores_of(rank: int, threads: int, cores: Sequence[int]) -> set[int]:
    """The cores of a rank that computes with so many threads: the next ones that no rank before it has."""
    return {cores[(rank * threads + number) % len(cores)] for number in range(threads)}


def _stay_on_cores(rank: int) -> None:
    """Keep all threads of this rank on as many cores as compute, the same as those of the other side's rank with the
    same number.

    Cores differ, for example if another process uses one of them or its hyperthread: with the kernel's placement, one
    side was slower by 3 % in eight of eight pairs. On fewer cores than compute, threads that wait for each other take
    the cores from those that they wait for: pairs of a script with two threads on one core differed by up to 30 %.
    """
    import torch

    cores = cores_of(rank, torch.get_num_threads(), sorted(os.sched_getaffinity(0)))
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread), cores)
            as_batch(int(thread))  # a script's own, too


def keep_freed_memory() -> None:
    """Let glibc keep what a step frees, instead of giving it back to the kernel and getting it anew, page by page.

    How much it gives back depends on where the heap happens to end, so one process is slower than the next, for as long
    as it lives. Six equal processes on one core had steps of 9.4 to 11.4 ms, and of 9.6 to 9.7 ms with this. Both sides
    have it, and nothing but times is measured in turns.
    """
    with contextlib.suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAPPED)
        mallopt(M_TRIM_THRESHOLD, KEPT)


def started_by(process: int, ranks: set[int]) -> set[int]:
    """The processes that one has started, and those in turn; without other ranks and theirs."""
    found, ahead = set[int](), [process]
    while ahead:
        folder = Path("/proc", str(ahead.pop()))
        with contextlib.suppress(OSError):  # it has ended
            children = {int(pid) for path in folder.glob("task/*/children") for pid in path.read_text().split()}
            ahead += children - ranks
            found |= children - ranks
    return found


@contextlib.contextmanager
def standing_still(processes: set[int]) -> Iterator[None]:
    """Inside, these processes do nothing. They go on if this process is told to end: they may wait for that."""

    def send(number: int) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def end(number: int, frame: object) -> None:
        send(signal.SIGCONT)
        signal.signal(number, before or signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handles = bool(processes) and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if handles else None
    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)
        if handles:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _ranks() -> set[int]:
    """The processes of a script's ranks, of which one may have started another."""
    files = Path(started_with[SCRIPT]).glob(PID.format(rank="*")) if SCRIPT in started_with else ()
    return {int(file.read_text().split()[0]) for file in files}


class _Taker:
    """One rank's turns, from the first timed step on. ``heard`` counts the messages of each rank of the other side:
    that it is ready, then that a turn of its own is done.
    """

    def __init__(self, session: Session, turns: Turns) -> None:
        self.session = session
        self.begun, self.steps, self.made = False, turns.steps, 0
        self.inbox = os.open(turns.inboxes[session.rank], os.O_RDWR)
        self.outboxes = [os.open(path, os.O_RDWR) for path in turns.outboxes]
        self.due = 0 if turns.first else 1  # the second side waits for one more turn
        self.heard = Counter(dict.fromkeys(range(len(turns.outboxes)), 0))

    def take(self, kind: StepKind) -> None:
        if kind == StepKind.TIMED and not self.begun:
            self.begun = True
            if self.session.job.device == "cpu":
                _stay_on_cores(self.session.rank)
                keep_freed_memory()
        if not self.begun:
            return
        self.made += 1
        if (self.made - 1) % self.steps:  # in the middle of its turn
            return
        self.session.synchronize()  # the device, too, is done with the step
        if self.session.world_size > 1:
            align(self.session)  # else a rank may still need what another has started
        with standing_still(started_by(os.getpid(), _ranks())):
            self._wait()

    def _wait(self) -> None:
        """Until the other side has made its turn."""
        for outbox in self.outboxes:
            os.write(outbox, bytes([self.session.rank]))
        self.due += 1
        while min(self.heard.values(), default=self.due) < self.due:
            if not wait_readable([self.inbox], TELL_SECONDS):
                self.session.phases.wait("turn")
                continue
            said = os.read(self.inbox, MOST_BYTES)
            self.heard.update(said)
            if GONE in said:
                self.outboxes.clear()
                self.heard.clear()
