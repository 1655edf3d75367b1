"""Device leases: a timed cell shares its GPUs, or on a CPU the CPU, with no other cell of this user.

Who came first is served first: a cell that waits for eight GPUs is not passed by cells that need one.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from filelock import FileLock, Timeout

from perfsuite.errors import UsageError
from perfsuite.records import codec
from perfsuite.records.record import Record
from perfsuite.system.deadline import check, excused
from perfsuite.system.paths import runtime_folder

POLL_SECONDS = 0.05
TELL_SECONDS = 5.0  # of waiting, until the holder is named
AGAIN_SECONDS = 60.0
Islands = Sequence[Sequence[int]]


class Holder(Record, frozen=True, kw_only=True):
    """The process that holds a lease: its ``command``, and since when, as time.time()."""

    pid: int
    command: str
    since: float


Hear = Callable[[Holder | None, float], None]  # who holds what is waited for, None if unknown; the seconds waited
_HEARS: ContextVar[Hear | None] = ContextVar("perfsuite_waits", default=None)


def hear_waits(hear: Hear) -> Callable[[], None]:
    """Let ``hear`` know of every long wait for a lease in this context, until what is returned is called."""
    before = _HEARS.get()
    _HEARS.set(hear)

    def stop() -> None:
        _HEARS.set(before)

    return stop


class _Patience:
    """One wait, which is told after a while, and again from time to time."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._files = [folder / f"{name}.lock-holder" for name in names]
        self._begin = time.monotonic()
        self._next = TELL_SECONDS

    def look(self) -> None:
        """Called while it lasts."""
        hear, waited = _HEARS.get(), time.monotonic() - self._begin
        if hear and waited >= self._next:
            self._next = waited + AGAIN_SECONDS
            holders = (codec.read_kept(file, Holder) for file in self._files)
            hear(next(filter(None, holders), None), waited)


def _sign(folder: Path, names: Iterable[str]) -> None:
    """Leave this process' name for whoever waits."""
    holder = Holder(pid=os.getpid(), command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), since=time.time())
    for name in names:
        codec.keep(folder / f"{name}.lock-holder", holder)


def _unsign(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / f"{name}.lock-holder").unlink(missing_ok=True)


@contextlib.contextmanager
def lease(candidates: Sequence[int], count: int, islands: Islands = ()) -> Iterator[list[int]]:
    """Hold ``count`` of the accelerators ``candidates`` until the block ends; without candidates, the whole CPU.

    It takes the first ``count`` neighbours of one island that are all free, counted in blocks of that size, or else the
    first free ones. With fewer possible sets, a cell gets the set of its baseline more often. ``islands`` are the
    candidates that NVLink connects with each other; by default all are one. Waits as long as necessary, or until a
    limit of time is used up; raises UsageError if there are too few. The locks are this user's files, freed by the
    kernel if the holder dies.
    """
    folder = runtime_folder()
    if candidates and count > len(candidates):
        raise UsageError(f"{count} accelerators are needed, but this machine has {len(candidates)} of this kind.")
    names = [f"gpu{index}" for index in candidates] or ["cpu"]
    wanted = count if candidates else 1
    places = [[f"gpu{index}" for index in island] for island in islands] or [names]
    blocks = [place[at : at + wanted] for place in places for at in range(0, len(place) - wanted + 1, wanted)]
    patience = _Patience(folder, names)
    with contextlib.ExitStack() as held:
        with excused(), _turn(folder, "-".join(names), patience):
            while len(got := _first_free([*blocks, names], folder, wanted, held)) < wanted:
                check()
                patience.look()
                time.sleep(POLL_SECONDS)
        held.callback(_unsign, folder, got)
        _sign(folder, got)
        yield [int(name.removeprefix("gpu")) for name in got] if candidates else []


@contextlib.contextmanager
def _turn(folder: Path, queue: str, patience: _Patience) -> Iterator[None]:
    """Wait until all that queued earlier have been served. A place in the queue is a locked file; if its owner dies, it
    is no longer locked.
    """
    import fcntl  # missing on Windows, where baselines can still be read

    descriptor, part = tempfile.mkstemp(prefix="part-", dir=folder)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    mine = folder / f"queue-{queue}-{time.monotonic_ns():020d}-{threading.get_native_id()}"
    Path(part).rename(mine)  # locked before anybody sees it
    try:
        while any(_waits(one) for one in sorted(folder.glob(f"queue-{queue}-*")) if one.name < mine.name):
            check()
            patience.look()
            time.sleep(POLL_SECONDS)
        yield
    finally:
        mine.unlink(missing_ok=True)
        os.close(descriptor)


def _waits(place: Path) -> bool:
    """Whether its owner lives; removes the place if not."""
    import fcntl

    with contextlib.suppress(FileNotFoundError), place.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        place.unlink(missing_ok=True)
    return False


def _first_free(groups: Iterable[list[str]], folder: Path, wanted: int, held: contextlib.ExitStack) -> list[str]:
    """So many names of one group, locked; else none."""
    for some in groups:
        with contextlib.ExitStack() as tried:
            got = _locked(folder, some, wanted, tried)
            if len(got) == wanted:
                held.push(tried.pop_all())
                return got
    return []


def _locked(folder: Path, names: list[str], wanted: int, held: contextlib.ExitStack) -> list[str]:
    """At most so many of the names, those that were not locked until now."""
    got: list[str] = []
    for name in names:
        if len(got) == wanted:
            break
        with contextlib.suppress(Timeout):
            held.enter_context(FileLock(folder / f"{name}.lock", timeout=0))
            got.append(name)
    return got
