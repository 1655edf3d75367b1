"""The floor: the smallest difference of an exact metric that a report calls worse or better in words.

The gate has none: it compares exact metrics for equality. Reports of whole releases count smaller differences, such as
128 bytes of 9 GiB, in one line.
"""

FLOOR = 0.01  # relative: with every release some operators of a thousand come or go


def is_small(share: float | None) -> bool:
    """Whether a relative difference is below the floor; None, from nothing to something, is not."""
    return share is not None and abs(share) < FLOOR
