"""Short digests of data: equal ones are of equal data, by all that a comparison needs to believe."""

import hashlib
from collections.abc import Sequence

BEFORE, STEPS = (
    "before the steps",
    "steps",
)  # of samples in their order: iterations that are not measured, and those that are
BYTES = 4  # two different contents have one digest in one of 2**32 cases


def digest_of(*contents: bytes | bytearray | memoryview) -> str:
    """Of all these bytes, one after the other: 8 hexadecimal digits."""
    state = hashlib.blake2b(digest_size=BYTES)
    for content in contents:
        state.update(content)
    return state.hexdigest()


def joined(digests: Sequence[str]) -> str:
    """One digest of several; the digest itself if all are equal, and empty if there are none."""
    return digests[0] if len(set(digests)) == 1 else digest_of("/".join(digests).encode()) if digests else ""


def first_other(old: Sequence[str], new: Sequence[str]) -> int | None:
    """The first place at which both have a digest, and another one; None if there is none."""
    places = (at for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after)
    return next(places, None)
