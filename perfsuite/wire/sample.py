"""The measurement of one rank."""

import sys

from perfsuite.wire.record import Record


class Reading(Record, frozen=True, kw_only=True):
    """One metric's value, with the parts that add up to it and the raw samples that it summarizes, where it has them.

    ``suspects`` are what a part is made of, the largest only, as records/suspects.py writes them: evidence,
    not held to anything.

    A sample is None where an fp16 step overflowed and was skipped. ``ranks`` holds each rank's value.
    """

    value: int | float
    parts: dict[str, int] = {}
    suspects: dict[str, int] = {}
    samples: list[float | None] = []
    ranks: list[int | float] = []


class RankSample(Record, frozen=True, kw_only=True):
    """What one rank measured. ``engine`` is the evidence that the engine is what the cell names, ``flags`` the switches
    and variables that change speed, as rank/flags.py finds them when the steps have run.
    """

    rank: int
    readings: dict[str, Reading]
    engine: dict[str, str | int]
    versions: dict[str, str]
    flags: dict[str, str] = {}
    phases_seconds: dict[str, float]


def is_number(value: object) -> bool:
    """True for a finite number; a bool is none, and neither is a whole number beyond every float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max  # False for NaN
