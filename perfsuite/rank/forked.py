"""Runs a function in a fork of this rank: whatever it does to the process, its end included, stays there.

A model that runs on fake tensors may keep one in a cache of its own, wait for a value that never comes, or hand a null
pointer to a kernel. None of that may reach the steps that are measured.
"""

import signal
import warnings
from collections.abc import Callable
from typing import Any

from perfsuite.errors import RankError
from perfsuite.system.units import printable

LONGEST = 300  # characters of a reason


class NoAnswer(RankError):
    """The function has no answer; the text is the reason, in one line."""


def in_a_fork(function: Callable[[], Any], seconds: float) -> Any:
    """The function's answer, from a fork of this process. Raises NoAnswer if the function raises, if it takes longer
    than ``seconds``, or if the fork dies.
    """
    import multiprocessing
    import resource  # neither imports on Windows, where commands that only read must work

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ours.close()
        try:
            answer = True, function()
        except BaseException as error:
            answer = False, reason_of(error)
        theirs.send(answer)

    fork = context.Process(target=run, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the fork uses none of them
        try:
            fork.start()
        except OSError as error:
            raise NoAnswer(f"no process for it: {error.strerror}") from error
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise NoAnswer(f"it took longer than {seconds:.0f} s")
        answered, value = ours.recv()
    except EOFError:
        fork.join()
        raise NoAnswer(_how_it_ended(fork.exitcode or 0)) from None
    finally:
        ours.close()
        fork.kill()
        fork.join()
    if not answered:
        raise NoAnswer(value)
    return value


def reason_of(error: BaseException) -> str:
    """``ValueError: the first line of its text``; a NoAnswer's own text."""
    if isinstance(error, NoAnswer):
        return str(error)
    first = next(iter(printable(str(error)).strip().splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    return f"it died by {signal.Signals(-status).name if -status in set(signal.Signals) else -status}"
