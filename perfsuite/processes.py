"""What a process asks of Linux about itself."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Get that signal when the parent has ended, however it ends; prctl(2), PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
