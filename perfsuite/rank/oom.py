"""What was alive when memory ran out, by category, together with what was asked for then."""

from collections.abc import Mapping, Sequence

from perfsuite.rank.anatomy import Mark, dissect

REFUSED = -2  # the address of the block that there was no room for
Event = tuple[int, int, str]


def parts_at_refusal(
    events: Sequence[Event], marks: Mapping[int, Mark], named: Mapping[int, str], refused: tuple[int, int]
) -> dict[str, int]:
    """The categories of all that was alive at the event of index ``refused[0]``, and of the ``refused[1]`` bytes more.

    The anatomy of the log up to there as if the block had been had, for then that is its peak. ``named`` are the
    storages that the trainer knows now. In a forward that did not end, whatever it holds counts as activations, its
    operators' temporaries too. Empty if the peak lies elsewhere: more was alive before, as where CUDA's memory is
    fragmented, or no step had begun.
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
    """The index of the last event after which so many bytes were alive: what an exception lets go of comes later."""
    total, found = 0, None
    for index, (address, size, _) in enumerate(events):
        total += size if address != -1 else 0
        found = index if total == alive else found
    return found
