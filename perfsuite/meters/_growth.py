"""Whether what has grown in the measured steps of a script goes on to grow in later ones: a leak does, a cache ends.
Something may begin to grow late, too.
"""

import itertools
import statistics
from collections.abc import Sequence

RISES, FEWEST = 0.9, 20  # share of the steps that need more than the step before, and of how many
ONE_BY_ONE, FEWEST_ONE_BY_ONE = 30, 12  # later steps that are asked each for itself
BLOCK, BLOCKS = 10, 3  # later steps in a block, and the blocks: fixed, so that each launch asks the same


def is_asked_at(step: int) -> bool:
    """Whether something that has grown is counted after this later step."""
    return ends_block(step) and step <= BLOCK * BLOCKS


def ends_block(step: int) -> bool:
    """Whether what may begin to grow is counted after this later step."""
    return step % BLOCK == 0


def goes_on(counts: Sequence[int], rate: int) -> bool:
    """Whether each block has grown at least half as fast as the measured steps, by the counts at their ends. If the
    script has made fewer, it counts as a leak.
    """
    least = rate * BLOCK / 2
    return len(counts) <= BLOCKS or all(after - before >= least for before, after in itertools.pairwise(counts))


def least_growth(counts: Sequence[int]) -> int:
    """By how much each step of the first blocks has grown at least, by the counts before them and after each; 0 if
    there are fewer blocks.
    """
    if len(counts) <= BLOCKS:
        return 0
    blocks = itertools.pairwise(counts[: BLOCKS + 1])
    return max(0, min((after - before) // BLOCK for before, after in blocks))


def nearly_each(counts: Sequence[int]) -> int:
    """By how much three of four steps have grown at least, by the counts at their ends; 0 if a tenth of them or more
    have shrunk by more than that, as a buffer does that is emptied again and again, or if there are few.
    """
    steps = sorted(after - before for before, after in itertools.pairwise(counts[: ONE_BY_ONE + 1]))
    rate = steps[len(steps) // 4] if len(steps) >= FEWEST_ONE_BY_ONE else 0
    return rate if rate > 0 and sum(step < -rate for step in steps) * 10 < len(steps) else 0


def each_step(sums: Sequence[int]) -> list[int]:
    """What each step has added, of the sums at their ends."""
    return [after - before for before, after in itertools.pairwise([0, *sums])]


def rising(peaks: Sequence[int]) -> int:
    """By how many bytes a step needs more than the one before, if nearly each does, of all or of the second half;
    otherwise 0. So a tensor is found that each step makes anew, and larger, and a leak that begins late. Steps that
    differ by their batches rise in half of the cases.
    """
    return next(filter(None, map(_rise, (peaks, peaks[len(peaks) // 2 :]))), 0)


def _rise(peaks: Sequence[int]) -> int:
    rises = [after - before for before, after in itertools.pairwise(peaks) if after > before]
    return statistics.median_low(rises) if len(peaks) > FEWEST and len(rises) >= RISES * (len(peaks) - 1) else 0
