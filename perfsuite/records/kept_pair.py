"""A finished pair of launches, kept until all of its trial are: a trial that is broken off goes on with it."""

from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record


class KeptPair(Record, frozen=True, kw_only=True):
    """Side A and side B of a cell."""

    cell: str
    a: Measurement
    b: Measurement
