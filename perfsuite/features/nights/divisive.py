"""E-divisive: where the distribution of a series changes, by energy distances and permutations.

Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 109 (2014),
arXiv 1306.4933, in one dimension and with the exponent 1. As in MongoDB's and Apache Otava's variant, a segment's
second part always ends where the segment ends.
"""

from collections.abc import Sequence
from typing import Any

LEAST = 4  # nights of a segment
PERMUTATIONS = 99
LEVEL = 0.05
ENOUGH = int(LEVEL * (PERMUTATIONS + 1))  # permutations that exceed the statistic: the split is chance


def change_points(numbers: Sequence[float]) -> list[int]:
    """The first night of every segment but the first."""
    import numpy

    values = numpy.asarray(numbers, dtype=float)
    dice = numpy.random.default_rng(0)
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
    below = numpy.tri(len(values), k=-1)
    at, best = _best(distances, below)
    exceeded = 0
    for _ in range(PERMUTATIONS):
        order = dice.permutation(len(values))
        exceeded += _best(distances[order].take(order, axis=1), below)[1] >= best
        if exceeded >= ENOUGH:
            return None
    return at


def _best(distances: Any, below: Any) -> tuple[int, float]:
    """The split with the largest energy statistic, and the statistic. ``below`` masks each night's predecessors."""
    import numpy

    count = len(distances)
    left = numpy.arange(LEAST, count - LEAST + 1)
    right = count - left
    sums = distances.sum(1)
    within_left = 2 * numpy.einsum("ij,ij->i", distances, below).cumsum()[left - 1]
    between = sums.cumsum()[left - 1] - within_left
    within_right = sums.sum() - within_left - 2 * between
    energy = 2 * between / (left * right) - within_left / (left * (left - 1)) - within_right / (right * (right - 1))
    statistic = energy * left * right / count
    at = int(statistic.argmax())
    return int(left[at]), float(statistic[at])
