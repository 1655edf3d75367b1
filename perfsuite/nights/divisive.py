"""E-divisive: where the distribution of a series changes, by energy distances and permutations.

Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 109 (2014),
arXiv 1306.4933, in one dimension and with the exponent 1. As in MongoDB's and Apache Otava's variant, a segment's
second part always ends where the segment ends. Nights resemble their neighbours, so blocks of nights are permuted.
"""

from collections.abc import Sequence
from typing import Any

LEAST = 4  # nights of a segment
BLOCK = 5  # nights that are permuted together
PERMUTATIONS = 99
LEVEL = 0.05
ENOUGH = int(LEVEL * (PERMUTATIONS + 1))  # permutations that exceed the statistic: the split is chance


def change_points(numbers: Sequence[float], seed: int = 0) -> list[int]:
    """The first night of every segment but the first."""
    import numpy

    values = numpy.asarray(numbers, dtype=float)
    dice = numpy.random.default_rng(seed)
    found, waiting = [], [(0, len(values))]
    while waiting:
        start, end = waiting.pop()
        if end - start < 2 * LEAST:
            continue
        at = _split(values[start:end], dice)
        if at is not None:
            found.append(start + at)
            waiting += [(start, start + at), (start + at, end)]
    return sorted(found)


def _split(values: Any, dice: Any) -> int | None:
    """The best split of a segment, or None if permutations reach its statistic."""
    import numpy

    distances = numpy.abs(values[:, None] - values[None, :])
    at, best = _best(distances)
    exceeded = 0
    starts = numpy.arange(0, len(values), BLOCK)
    for _ in range(PERMUTATIONS):
        blocks = dice.permutation(starts)
        order = (blocks[:, None] + numpy.arange(BLOCK)).ravel()
        order = order[order < len(values)]
        exceeded += _best(distances[numpy.ix_(order, order)])[1] >= best
        if exceeded >= ENOUGH:
            return None
    return at


def _best(distances: Any) -> tuple[int, float]:
    """The split with the largest energy statistic, and the statistic."""
    import numpy

    count = len(distances)
    sums = distances.cumsum(0).cumsum(1)
    left = numpy.arange(LEAST, count - LEAST + 1)
    right = count - left
    within_left = sums[left - 1, left - 1]
    between = sums[left - 1, count - 1] - within_left
    within_right = sums[-1, -1] - within_left - 2 * between
    apart = 2 * between / (left * right)
    energy = apart - within_left / (left * numpy.maximum(left - 1, 1)) - within_right / (right * numpy.maximum(right - 1, 1))
    statistic = energy * left * right / count
    at = int(statistic.argmax())
    return int(left[at]), float(statistic[at])
