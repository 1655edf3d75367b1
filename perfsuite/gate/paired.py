"""Two sides launched in pairs, and the ratio of their times. Pure functions of logarithms of seconds.

A pair is a launch of each side, neighbours in time, by rank servers that are new for the pair; which of them comes
first is drawn by lot. Its difference is the median of d = b - a over its steps. The ratio is exp of the differences'
median, estimated by Hodges and Lehmann, the median of all Walsh averages (dᵢ + dⱼ) / 2 with i ≤ j, and its interval
reaches from the k-th smallest to the k-th largest of them, where k comes from the exact distribution of Wilcoxon's
signed-rank statistic (Hollander, Wolfe and Chicken 2014, "Nonparametric Statistical Methods", 3rd edition, sections 3.1
to 3.3).

That distribution is the lot's: where the sides are equal each difference has either sign with even chances, whatever
the noise is (Fisher 1935, "The Design of Experiments", section 21), if it is drawn anew for each pair. Ranks inherit
their server's memory layout: where that spreads by 1 %, as launches do, and each side keeps its server, 51 % of 4,000
simulated comparisons of a side with itself have no 0 in their interval; with new servers for every other pair, whose
differences then go together, 3.9 %; with new ones for each, 1.7 %.

Where steps alternate (perfsuite/duet.py) both of a step are neighbours too, and a slow spell cancels within the pair.

A fixed order A B B A cancels a drift too, but a slow spell of the machine that covers B B moves both differences alike,
and 5 % of comparisons of real launches of one version were red. Means of the whole block are better there, but spread
one bad launch over both of its pairs: of 12 blocks with a spread of 2 % and one launch in twenty 20 % slower, they find
+5 % in 45 % of cases, pairs in 87 %.

Pairs are added until the interval is no wider than the threshold. That looks at its width alone and never at where it
lies, so that nobody goes on until a difference shows up by luck; that it stops where the spread happens to be small is
why the 1.7 % are not 1 %. Such an interval that holds the truth lies within the threshold on both sides where the truth
is 0, and beyond it where the truth is more than twice the threshold, so both are decided.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.99
THRESHOLD = 0.02  # a relative change that nobody needs to hear of
MOST_BLOCKS = 16  # find +5 % in 95 % of cases where launches spread by 2 %
PAIRS = 2  # in a block


@dataclass(frozen=True)
class Interval:
    """Of the median of the differences, in logarithms."""

    estimate: float
    low: float
    high: float

    def narrow(self, threshold: float) -> bool:
        """Whether it is no wider than from no difference to the threshold."""
        return self.high - self.low <= math.log1p(threshold)


def least_blocks(confidence: float = CONFIDENCE) -> int:
    """The fewest blocks that have an interval at all: with fewer, all differences on one side can still be luck."""
    return math.ceil(math.log2(2 / (1 - confidence)) / PAIRS)


def interval(differences: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """None where there are too few differences."""
    count = len(differences)
    left_out = _left_out(count, confidence)
    if left_out is None:
        return None
    walsh = sorted((one + other) / 2 for at, one in enumerate(differences) for other in differences[at:])
    return Interval(statistics.median(walsh), walsh[left_out], walsh[-1 - left_out])


def enough(differences: Sequence[float], threshold: float = THRESHOLD) -> bool:
    """Whether the interval is so narrow that no further pair is needed."""
    found = interval(differences)
    return found is not None and found.narrow(threshold)


def conclude(found: Interval | None, threshold: float) -> str:
    """ "regressed" or "improved" only if the whole interval lies beyond the threshold, "same" only if the whole of it
    lies within; else "undecided".
    """
    if found is None:
        return "undecided"
    limit = math.log1p(threshold)
    if found.low > limit:
        return "regressed"
    if found.high < -limit:
        return "improved"
    return "same" if -limit <= found.low and found.high <= limit else "undecided"


@functools.cache
def _left_out(count: int, confidence: float) -> int | None:
    """How many Walsh averages lie outside on each side; None where not even the whole range has that confidence.

    The statistic is the sum of a random subset of the ranks 1 … n, each rank in it or not with even chances.
    """
    subsets = [1] + [0] * (count * (count + 1) // 2)
    for rank in range(1, count + 1):
        for total in range(len(subsets) - 1, rank - 1, -1):
            subsets[total] += subsets[total - rank]
    most, below = (1 - confidence) / 2 * 2**count, 0
    for total, ways in enumerate(subsets):
        below += ways
        if below > most:
            return total - 1 if total else None
    return None
