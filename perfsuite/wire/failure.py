"""The failure of one rank."""

from typing import Literal

from perfsuite.wire.record import Record

FailureKind = Literal["oom", "unsupported", "raised", "killed", "hung", "result"]


class Failure(Record, frozen=True, kw_only=True):
    """Why a cell has no measurement: which rank failed first, how, and its last lines.

    Out of memory, ``parts`` are what was alive on that rank by category, with what was asked for then; empty where
    that is not known, as before the first step.
    """

    kind: FailureKind
    rank: int | None
    message: str
    tail: str = ""
    missing_bytes: int | None = None
    parts: dict[str, int] = {}
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
