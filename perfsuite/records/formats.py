"""The format of stored records, and the format of their dates. Raw samples are kept for ever."""

import datetime

FORMAT = 1  # of every record that is kept: a later perfsuite that needs another one counts on from here


def timestamp() -> str:
    """The current time, in UTC and to the second, as a record's date."""
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()
