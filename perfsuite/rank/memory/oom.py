"""The bytes alive when memory ran out, by category, including the failed request."""

from collections.abc import Mapping, Sequence

from perfsuite.rank.memory.anatomy import Mark, dissect

REFUSED = -2  # the address of the block that did not fit
Event = tuple[int, int, str]


def parts_at_refusal(
    events: Sequence[Event], marks: Mapping[int, Mark], named: Mapping[int, str], refused: tuple[int, int]
) -> dict[str, int]:
    """The bytes by category at the event of index ``refused[0]``, including the ``refused[1]`` requested bytes.

    This is the anatomy of the log up to there as if the block had been allocated, since that is then its peak.
    ``named`` are the storages that the trainer knows now. In an unfinished forward, all of its tensors count as
    activations, also temporaries. Empty if the peak is elsewhere: more was alive before, for example if CUDA's memory
    is fragmented, or no step had begun.
    """
    index, size = refused
    end = max(marks, default=-1) + 1
    log = [*events[: index + 1], (REFUSED, size, ""), (-1, end, "")]
    anatomy = dissect(log, {**marks, end: Mark("backward", named)})
    alive = sum(event[1] for event in log[: index + 1] if event[0] != -1)
    return (
        {name: part for name, part in anatomy.categories.items() if part} if anatomy.peak_bytes == alive + size else {}
    )


def last_with(events: Sequence[Event], alive: int) -> int | None:
    """The index of the last event after which so many bytes were alive: an exception's releases come later."""
    total, last = 0, None
    for index, (address, size, _) in enumerate(events):
        total += size if address != -1 else 0
        last = index if total == alive else last
    return last
