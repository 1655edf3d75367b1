"""What a process needs from Linux."""

import contextlib
import ctypes
import platform
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator

from perfsuite.errors import UsageError

_PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 0.5


def require_linux(what: str) -> None:
    """Raise UsageError on any other system: ranks are forked, pinned to cores and watched with functions of Linux.

    ``what`` is the option or the command that starts them.
    """
    if sys.platform == "linux":
        return
    ways = "WSL 2 or a Linux container" if sys.platform == "win32" else "a Linux container"
    system = {"win32": "Windows", "darwin": "macOS"}.get(sys.platform, platform.system() or sys.platform)
    raise UsageError(f"{what} needs Linux, but this is {system}: run it in {ways}.")


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Get that signal when the parent ends, for whatever reason; prctl(2), PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


@contextlib.contextmanager
def ended_with(connection: socket.socket) -> Iterator[None]:
    """Inside, this process exits soon after the other end of the connection was closed or its process has died. For
    imports and builds, which take minutes and read nothing. ``end_with_parent`` is for a parent's only thread: the
    kernel sends that signal when the thread ends that started this process.
    """
    poller = select.poll()
    poller.register(connection, 0)  # a closed end is reported in any case

    def look(*_: object) -> None:
        if poller.poll(0):
            sys.exit(1)

    before = signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)  # libraries may not expect that a call is interrupted
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)  # no child inherits it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends this process as Ctrl-C does: what is known is kept, and no file stays. Nothing changes in a
    thread, which has no signals, or where somebody has a handler.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
