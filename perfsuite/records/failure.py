"""The failure of one rank."""

from typing import Literal

from perfsuite.records.installed import Installed
from perfsuite.records.record import Record

FailureKind = Literal["oom", "unsupported", "raised", "killed", "hung", "result"]


class Failure(Record, frozen=True, kw_only=True):
    """Why a cell has no measurement: which rank failed first, how, and its last lines.

    After an out-of-memory, ``parts`` are the tensors on that rank by category, including the failed request; empty if
    that is unknown, as before the first step. ``add`` are techniques with which an unsupported cell may run,
    ``world_size`` the ranks of a script whose cell has another number, ``timed_steps`` those that a script has left
    room for, if it made fewer than were asked for. Without a rank, the last lines are the rank server's, or those of
    the script's command.
    """

    kind: FailureKind
    rank: int | None
    message: str
    tail: str = ""
    missing_bytes: int | None = None
    parts: dict[str, int] = {}
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
    installed: Installed = Installed()
    add: tuple[str, ...] = ()
    world_size: int | None = None
    timed_steps: int | None = None
    of_command: bool = False

    @property
    def alone(self) -> str:
        """The message without the rank that was the first to say it, which varies by chance."""
        return self.message if self.rank is None else self.message.removeprefix(of_rank(self.rank, ""))


def of_rank(rank: int, message: str) -> str:
    """The message that a rank left."""
    return f"Rank {rank}: {message}"
