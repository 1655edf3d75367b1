"""The variables that the user's own code has asked for, as records have them: a digest of each value by its name."""

from __future__ import annotations

from collections.abc import Mapping

ALL = "*"  # in place of a name: code has read all variables, so those that it may have used and were set have one


def compared(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What both sides say of: the names that both have, and those that were set since, if both have read all. Of
    another name, one side does not say its value.
    """
    from perfsuite.records.change import NONE  # a rank takes ALL before it can import msgspec

    both = before.keys() & after.keys()
    names = sorted((both | after.keys() if ALL in both else both) - {ALL})
    return ({name: before.get(name) or NONE for name in names}, {name: after.get(name) or NONE for name in names})
