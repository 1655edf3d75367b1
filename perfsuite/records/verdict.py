"""The verdict on one cell."""

from typing import Literal

from perfsuite.wire.record import Record

# gate/judge.py says what each means; "same" and "differs" are those of an A/B, "not held" is of a line alone.
Status = Literal[
    "failed",
    "incomparable",
    "missing",
    "regressed",
    "improved",
    "alarm",
    "undecided",
    "machine",
    "unheld",
    "ok",
    "unsupported",
    "not held",
    "same",
    "differs",
    # In reports of format 2 and before, which are still read.
    "suspected",
    "unstable",
    "excused",
]


class Line(Record, frozen=True, kw_only=True, gc=False):
    """One metric of a verdict, ready to print: ``old`` and ``new`` are texts in human units, ``detects`` the smallest
    effect that would be seen.
    """

    metric: str
    title: str
    status: Status
    old: str
    new: str
    change: str
    allowed: str
    note: str = ""
    detects: str = ""


class Verdict(Record, frozen=True, kw_only=True, gc=False):
    """What the judge says of one cell: ``status`` is the worst of its lines', ``headroom`` what is left of memory.
    ``trial`` says what was tried, and which change did it.
    """

    cell: str
    status: Status
    headline: str
    lines: list[Line] = []
    changed: list[str] = []
    trial: list[str] = []
    accept: str = ""
    headroom: str = ""
