"""How a rank ends, or does not."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from perfsuite.rank.faults import at

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def _raise(error: BaseException) -> None:
    raise error


def harmless(session: Session, trainer: Any, meters: Any) -> None:
    """No fault: a gate that is red here raises a false alarm."""


def killed(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 gets SIGKILL in the backward of step 3."""
    at(session, "backward", 3, lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfault(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 dies of a segmentation fault in the optimizer of step 2."""
    at(session, "optimizer", 2, lambda: os.kill(os.getpid(), signal.SIGSEGV))


def stopped(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 is stopped, as by a debugger, in the forward of step 2."""
    at(session, "forward", 2, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def hangs(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 sleeps for ever in the forward of step 2."""
    at(session, "forward", 2, lambda: time.sleep(10_000))


def raises(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 raises in the forward of step 2."""
    at(session, "forward", 2, lambda: _raise(ValueError("a fault put here on purpose")))


def exits(session: Session, trainer: Any, meters: Any) -> None:
    """Rank 1 exits without a message."""
    at(session, "forward", 2, lambda: os._exit(3))
