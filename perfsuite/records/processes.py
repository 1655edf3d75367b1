"""What a process needs from Linux."""

import ctypes
import platform
import signal
import sys

from perfsuite.errors import UsageError

_PR_SET_PDEATHSIG = 1


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
