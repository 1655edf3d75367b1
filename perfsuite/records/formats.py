"""The formats of stored records, and the format of their dates. Raw samples are kept for ever.

Format history of Baseline and of the report's lines
    5   2026-11   a verdict is data: numbers, reasons, moves, causes;
                a report begins with the tests that were selected, and ends with pytest's exit status; a run of times
                keeps its imports, and a machine its name; a measurement keeps what was
                installed, and which metrics could not be counted
    4   2026-11   a measurement keeps the curve of live memory over a step, and what its ranks imported; a result keeps
                its cost
    3   2026-11   a baseline keeps the times of several runs in addition to its measurement
    2   2026-11   a measurement may have several launches, whose timed samples are concatenated; the control; what was
                alive when memory ran out
    1   2026-11   first; read as a measurement of one launch
"""

import datetime

FORMAT = 5
FORMATS = (1, 2, 3, 4, 5)  # readable ones


def timestamp() -> str:
    """The current time, in UTC and to the second, as a record's date."""
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()
