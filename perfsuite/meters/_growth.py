"""Whether what has grown in the measured steps of a script goes on to grow in later ones: a leak does, a cache ends."""

import itertools
from collections.abc import Sequence

BLOCK, BLOCKS = 10, 3  # later steps in a block, and the blocks: fixed, so that each launch asks the same


def is_asked_at(step: int) -> bool:
    """Whether something that has grown is counted after this later step."""
    return step % BLOCK == 0 and step <= BLOCK * BLOCKS


def goes_on(counts: Sequence[int], rate: int) -> bool:
    """Whether each block has grown at least half as fast as the measured steps, by the counts at their ends. If the
    script has made fewer, it counts as a leak.
    """
    least = rate * BLOCK / 2
    return len(counts) <= BLOCKS or all(after - before >= least for before, after in itertools.pairwise(counts))
