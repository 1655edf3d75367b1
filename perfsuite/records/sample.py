"""The measurement of one rank."""

import sys
from typing import Any

from perfsuite.records.installed import Installed
from perfsuite.records.record import Record


class Reading(Record, frozen=True, kw_only=True):
    """One metric's value, with the parts that add up to it and the raw samples that it summarizes, if it has them.

    ``suspects`` are the largest constituents of the parts, in the format of records/suspects.py: evidence that is not
    compared.

    ``lines`` are the lines of the user's code that a suspect comes from, with the number of each, by the suspect
    without the numbers of its layers (suspects.py).

    ``phases`` are the seconds of phases that a script names itself, which are within the value: of "other" alone.

    ``series`` are numbers by the names that a script gives them, in the order in which they came; None is one that is
    not finite. ``digests`` are those of data (records/digests.py) by their names, in the order in which they came.

    A sample is None if an fp16 step overflowed and was skipped. ``ranks`` has each rank's value, or those of
    its devices if it has several.
    """

    value: int | float
    parts: dict[str, int] = {}
    suspects: dict[str, int] = {}
    phases: dict[str, float] = {}
    lines: dict[str, dict[str, int]] = {}
    samples: list[float | None] = []
    series: dict[str, list[float | None]] = {}
    digests: dict[str, list[str]] = {}
    ranks: list[int | float] = []


class RankSample(Record, frozen=True, kw_only=True):
    """The measurement of one rank. ``engine`` is the evidence that the engine is the one that the cell names, ``flags``
    the switches and variables that affect speed, as rank/flags.py finds them after the steps. ``asked`` are a
    Measurement's. ``files`` are the sources
    of imported modules that are no installed package's, ``opened`` the files that the rank opened for reading before
    its steps, all that a script read, and the loaded shared libraries; ``looked_for`` are other files and folders whose
    presence it asked for. ``memory_curve`` is in the format of
    records/curves.py. ``uncounted`` are metrics that cannot be counted on this rank, with the reasons: then no rank's
    is folded. One without a reason is absent without a word. ``observed`` is what each probe of a job that proves has
    seen, by the probe's name.
    """

    rank: int
    readings: dict[str, Reading]
    engine: dict[str, str | int]
    versions: dict[str, str]
    flags: dict[str, str] = {}
    asked: dict[str, str] = {}
    phases_seconds: dict[str, float]
    files: list[str] = []
    opened: list[str] = []
    looked_for: list[str] = []
    installed: Installed = Installed()
    memory_curve: dict[str, str] = {}
    uncounted: dict[str, str] = {}
    observed: dict[str, Any] = {}


def is_number(value: object) -> bool:
    """True for a finite number; False for a bool, and for an integer larger than every float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max  # False for NaN
