"""Stored measurements and predictions, with their origin."""

from perfsuite.records.installed import Installed
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.record import Record


class TimedRun(Record, frozen=True, kw_only=True):
    """The times of one run, on one machine and in one environment: ``values`` are the medians of its timed metrics,
    ``imports``, ``asked`` and ``installed`` a Measurement's. In a file, ``installed`` is a digest if the baseline's
    measurement or an earlier run has the whole (compare/installations.py).
    """

    date: str
    machine: Machine
    versions: dict[str, str]
    flags: dict[str, str] = {}
    commit: str = ""
    imports: dict[str, str] = {}
    asked: dict[str, str] = {}
    installed: Installed | str = ""
    values: dict[str, float]


class Baseline(Record, frozen=True, kw_only=True):
    """A stored measurement with its origin. ``times`` are those of several runs, oldest first; if there are none, the
    measurement's own are the only ones.
    """

    format: int
    cell: str
    date: str
    commit: str
    measurement: Measurement
    times: list[TimedRun] = []


class OwnTimes(Record, frozen=True, kw_only=True):
    """The runs of a cell on one machine, in its cache folder, oldest first. ``baseline`` is the date of the baseline
    that they belong to: another one starts anew.
    """

    format: int
    cell: str
    baseline: str
    runs: list[TimedRun]
