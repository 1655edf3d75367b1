"""Two cells that are measured in turns, one's iteration, then the other's: both see the same mood of the machine.

The first ranks of both pass a byte to and fro through two named pipes; the other ranks wait for theirs. A side whose
other side has ended goes on alone.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from perfsuite.errors import RankError
from perfsuite.records import GONE

if TYPE_CHECKING:
    from perfsuite.records import Turns
    from perfsuite.training.session import Session

READY, TURN = b"r", b"t"
TELL_SECONDS = 1.0  # a rank that waits for its turn does not hang, and says so


def turns_of(session: Session) -> Callable[[str], None]:
    """What every rank calls before each step with the step's kind, and returns from when it is this cell's turn."""
    if session.job.turns is None:
        return lambda kind: None
    taker = _Taker(session, session.job.turns) if session.rank == 0 else None
    begun = False

    def take(kind: str) -> None:
        nonlocal begun
        begun = begun or kind == "timed"
        if not begun:
            return
        if taker:
            taker.take()
        align(session)

    return take


def align(session: Session) -> None:
    """All ranks go on together."""
    import torch.distributed as dist

    if session.world_size > 1 and dist.is_initialized():
        dist.barrier()


class _Taker:
    def __init__(self, session: Session, turns: Turns) -> None:
        self.session = session
        self.first = turns.first
        self.inbox, self.outbox = (os.open(path, os.O_RDWR) for path in (turns.inbox, turns.outbox))
        self.begun = self.alone = False

    def take(self) -> None:
        if self.begun:
            self._send(TURN)
            self._await(TURN)
            return
        self.begun = True
        self._send(READY)
        self._await(READY)
        if not self.first:
            self._await(TURN)

    def _send(self, message: bytes) -> None:
        if not self.alone:
            os.write(self.outbox, message)

    def _await(self, message: bytes) -> None:
        while not self.alone:
            if not select.select([self.inbox], [], [], TELL_SECONDS)[0]:
                self.session.mark("turn")
                continue
            got = os.read(self.inbox, 1)
            if got == message:
                return
            if got != GONE:
                raise RankError(f"The other side of an A/B said {got!r} where {message!r} was due.")
            self.alone = True
