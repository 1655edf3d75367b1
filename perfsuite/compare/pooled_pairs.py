"""The pairs of a grid's cells, how far they spread, and the interval of a cell's or a group's effect.

A pair's variance is that of the median over its steps, which the steps tell, plus PRIOR_SPREAD², which they do not: a
pair counts by the inverse. Steps of one rank differ by 1 %, those of two by 10 % and more. A group's effect is the
mean of its pairs' differences, in logarithms. A difference farther than CLIPPED deviations from what is already
explained counts as just as far: pairs of a shared machine have heavy tails (Huber 1964, "Robust estimation of a
location parameter"). If cells of the group differ by more than their pairs explain, the variance between them is added
(DerSimonian and Laird 1986, "Meta-analysis in clinical trials"). Pairs that share rank servers are alike, so they count
for less: the design effect 1 + (m - 1) ρ (Kish 1965, "Survey sampling"). A single cell has Student's interval, whose
spread combines its own pairs' with that of all, as compare/noise.py does for runs.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perfsuite.compare.noise import MAD
from perfsuite.compare.paired import PRIOR_SPREAD, Interval

CLIPPED = 2.5  # deviations
PRIOR_OF_GROUP = 4  # pairs that the spread of all counts as
PRIOR_OF_CELL = 10
FEWEST_CELLS = 4  # whose differences tell how far cells differ from each other
PER_SERVERS = 12  # cells that share the rank servers of a pair
OF_SERVERS = 1 / 8  # of a pair's variance, at most: what all cells of its servers share (benchmarks/pair_spread.py)


class Difference(NamedTuple):
    """Of a pair, B from A in logarithms; more is worse. ``error`` is the standard error of the median over steps."""

    by: float
    error: float


class PooledPairs:
    """The pairs by cell. ``offsets``: the effect of each cell that is explained already."""

    def __init__(self, differences: Mapping[str, Sequence[Difference]]) -> None:
        self.differences = {cell: list(of_cell) for cell, of_cell in differences.items() if of_cell}
        self.offsets = dict.fromkeys(self.differences, 0.0)
        self.weights = {
            cell: [1 / (one.error**2 + PRIOR_SPREAD**2) for one in of_cell]
            for cell, of_cell in self.differences.items()
        }
        self.scale = 1.0  # of the deviations: 1 if the pairs' variances are as expected
        self._known: dict[str, tuple[float, float]] = {}  # what _clipped() returns, for this scale and offsets

    @property
    def of_one_cell(self) -> bool:
        """Whether a cell is asked about alone. It is no group, so nothing of it is clipped."""
        return len(self.differences) == 1

    def explain(self, cells: Iterable[str], by: float) -> None:
        """Subtract an effect that these cells share."""
        for cell in cells:
            self.offsets[cell] += by
            self._known.pop(cell, None)

    def mean(self, cell: str) -> float:
        weighted = zip(self.weights[cell], self.differences[cell], strict=True)
        return sum(weight * one.by for weight, one in weighted) / sum(self.weights[cell])

    def count(self, cells: Iterable[str]) -> int:
        """Their pairs."""
        return sum(len(self.differences[cell]) for cell in cells)

    def rescale(self) -> None:
        """The deviations from what is explained: of pairs from their cell, or of all if few cells have several."""
        several = [cell for cell, of_cell in self.differences.items() if len(of_cell) > 1]
        centers = {cell: self.mean(cell) for cell in several}
        freedom = self.count(several) - len(several)
        if freedom < len(self.differences):
            centers, freedom = self.offsets, self.count(self.differences) - 1
        deviations = [
            abs(difference.by - center) * math.sqrt(weight)
            for cell, center in centers.items()
            for difference, weight in zip(self.differences[cell], self.weights[cell], strict=True)
        ]
        self._known.clear()
        if freedom < 1:
            return
        scale = MAD * statistics.median(deviations) * math.sqrt(len(deviations) / freedom)
        self.scale = math.sqrt((PRIOR_OF_GROUP + freedom * scale**2) / (PRIOR_OF_GROUP + freedom))

    def of_group(self, cells: Sequence[str], error: float, raw: bool = False, others: bool = True) -> Interval:
        """Of the mean of the cells' pairs: what is not explained yet, or all of it if ``raw``. That a group is slower
        is said of ``others`` like its cells too; that it is not, of these cells alone.
        """
        means, weights, squares = [], [], 0.0
        for cell in cells:
            mean, of_cell = self._clipped(cell)
            means.append(mean + (self.offsets[cell] if raw else 0.0))
            weights.append(sum(self.weights[cell]))
            squares += of_cell
        total, count = sum(weights), self.count(cells)
        estimate = sum(weight * mean for weight, mean in zip(weights, means, strict=True)) / total
        within = count - len(cells)
        scale = (PRIOR_OF_GROUP * self.scale**2 + squares) / (PRIOR_OF_GROUP + within)
        sharing = min(PER_SERVERS, len(self.differences))
        alike = 1 + OF_SERVERS * (sharing - 1) * len(cells) / len(self.differences)
        variance, of_weights = scale / total * alike, sum(weight**2 for weight in weights)
        if others and len(cells) >= FEWEST_CELLS:
            spread = sum(weight * (mean - estimate) ** 2 for weight, mean in zip(weights, means, strict=True))
            between = max(0.0, spread - (len(cells) - 1) * scale) / (total - of_weights / total)
            variance += between * of_weights / total**2
        return Interval(estimate, math.sqrt(variance), PRIOR_OF_GROUP + count - 1, error)

    def _clipped(self, cell: str) -> tuple[float, float]:
        """Of the cell's pairs beyond what is explained, clipped: their mean, and their squared deviations from it."""
        known = self._known.get(cell)
        if known is None:
            offset, weights = self.offsets[cell], self.weights[cell]
            clipped = []
            for difference, weight in zip(self.differences[cell], weights, strict=True):
                most = CLIPPED * self.scale / math.sqrt(weight)
                clipped.append(max(-most, min(most, difference.by - offset)))
            mean = sum(weight * one for weight, one in zip(weights, clipped, strict=True)) / sum(weights)
            squares = sum(weight * (one - mean) ** 2 for weight, one in zip(weights, clipped, strict=True))
            known = self._known[cell] = mean, squares
        return known

    def of_cell(self, cell: str, error: float, offset: float) -> Interval:
        """Of the mean of its own pairs, beyond the offset."""
        weights, mean = self.weights[cell], self.mean(cell)
        squares = sum(
            weight * (difference.by - mean) ** 2
            for weight, difference in zip(weights, self.differences[cell], strict=True)
        )
        prior = PRIOR_OF_GROUP if self.of_one_cell else PRIOR_OF_CELL
        freedom = prior + len(weights) - 1
        variance = (prior * self.scale**2 + squares) / freedom / sum(weights)
        return Interval(mean - offset, math.sqrt(variance), freedom, error)
