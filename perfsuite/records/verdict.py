"""The verdict on one cell."""

from typing import Literal

from perfsuite.records.record import Record

# Of a cell, worst first; compare/judge.py explains each.
CellStatus = Literal[
    "failed",
    "incomparable",
    "missing",
    "regressed",
    "improved",
    "alarm",
    "undecided",
    "machine",
    "unheld",
    "immaterial",
    "ok",
    "unsupported",
]
# "same" and "differs" are those of an A/B, "not held" is only for lines. The last three are in reports of format 2 and
# older, which can still be read.
Status = Literal[CellStatus, "not held", "same", "differs", "suspected", "unstable", "excused"]


class Line(Record, frozen=True, kw_only=True, gc=False):
    """One metric of a verdict, ready to print: ``old`` and ``new`` are texts in human units, ``detects`` is the
    smallest detectable effect.
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
    """The judge's verdict on one cell: ``status`` is the worst of its lines, ``headroom`` the memory that is left.
    ``trial`` says what was tried, and which change caused it; ``traces`` names the cell's traces and snapshots.
    """

    cell: str
    status: Status
    headline: str
    lines: list[Line] = []
    changed: list[str] = []
    trial: list[str] = []
    traces: list[str] = []
    accept: str = ""
    headroom: str = ""
