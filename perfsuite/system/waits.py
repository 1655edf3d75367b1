"""Waiting for files and connections to have something to read."""

import select
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    """A file, a socket, or an end of a connection."""

    def fileno(self) -> int: ...


def wait_readable(ends: Iterable[HasFileno | int], seconds: float) -> bool:
    """Whether one of them has something to read within so many seconds.

    poll() takes every descriptor; select() fails from number 1,024 on, which a large pytest run reaches.
    """
    poller = select.poll()
    for end in ends:
        poller.register(end, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))
