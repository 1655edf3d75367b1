"""Device leases: a timed cell shares its GPUs, or on a CPU the CPU, with no other cell of this user and TMPDIR."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from perfsuite.errors import UsageError

POLL_SECONDS = 0.05


@contextlib.contextmanager
def lease(candidates: list[int], count: int) -> Iterator[list[int]]:
    """Hold ``count`` of the accelerators ``candidates`` until the block ends; without candidates, the whole CPU.

    It takes the first ``count`` neighbours that are all free, counted in blocks of that size, or else the first free
    ones. With fewer possible sets, a cell gets the set of its baseline more often. Waits as long as necessary; raises
    UsageError if there are too few. The locks are this user's files, freed by the kernel if the holder dies.
    """
    folder = Path(tempfile.gettempdir()) / f"perfsuite-leases-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    if candidates and count > len(candidates):
        raise UsageError(f"{count} accelerators are needed, but this machine has {len(candidates)} of this kind.")
    names = [f"gpu{index}" for index in candidates] or ["cpu"]
    wanted = count if candidates else 1
    blocks = [names[at : at + wanted] for at in range(0, len(names) - wanted + 1, wanted)]
    while True:
        for some in (*blocks, names):
            with contextlib.ExitStack() as held:
                got = _locked(folder, some, wanted, held)
                if len(got) == wanted:
                    yield [int(name.removeprefix("gpu")) for name in got] if candidates else []
                    return
        time.sleep(POLL_SECONDS)


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
