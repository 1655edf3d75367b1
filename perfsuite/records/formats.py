"""The formats of what is kept in files, and how a date is written there. Raw samples are kept for ever.

Format history of Baseline and of the report's lines
    3   2026-11   a baseline keeps the times of several runs beside its measurement
    2   2026-11   a measurement may be of several launches, whose timed samples stand one behind the other; the control;
                what was alive when memory ran out
    1   2026-11   first; read as a measurement of one launch
"""

import datetime

FORMAT = 3
FORMATS = (1, 2, 3)  # that are read


def timestamp() -> str:
    """Now, in UTC and to the second, as a record's date."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
