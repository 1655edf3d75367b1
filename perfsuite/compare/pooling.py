"""The pairs of a whole grid as one body of evidence: what moved together, and which cells differ from it.

A cell's pair spreads by 1 to 3 %, so one pair of it says little. A hundred cells with a pair each know a slow-down that
all share to some tenths of a per cent. Every cell belongs to groups: all cells, those that run a package, an engine, a
family of models, a precision, a technique. What moved is the smallest set of groups and cells that explains the pairs:
the one with the largest t statistic is taken, its effect is subtracted, and so on until none is significant (forward
selection; Pati et al. 1993, "Orthogonal matching pursuit", for the subtraction). A larger group is named instead if its
other cells are nearer to these than to no effect.

A pair's variance is that of the median over its steps, which the steps tell, plus PRIOR_SPREAD², which they do not: a
pair counts by the inverse. Steps of one rank differ by 1 %, those of two by 10 % and more. A group's effect is the
mean of its pairs' differences, in logarithms. A difference farther than CLIPPED deviations from what is already
explained counts as just as far: pairs of a shared machine have heavy tails (Huber 1964, "Robust estimation of a
location parameter"). If cells of the group differ by more than their pairs explain, the variance between them is added
(DerSimonian and Laird 1986, "Meta-analysis in clinical trials"). Pairs that share rank servers are alike, so they count
for less: the design effect 1 + (m - 1) ρ (Kish 1965, "Survey sampling"). A single cell has Student's interval, whose
spread combines its own pairs' with that of all, as compare/noise.py does for runs.

The chance that anything is red without a cause is ``error`` for the whole run. All cells, the groups and the single
cells, as far as there are any, share it in equal parts; each hypothesis and each look has its share (Bonferroni).
`python benchmarks/grid_error_rates.py` simulates it and the constants.
"""

import functools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perfsuite.compare.noise import MAD
from perfsuite.compare.paired import FEWEST_PAIRS, MISSED, PRIOR_SPREAD, Interval
from perfsuite.records.verdict import Status

LOOKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # pairs of the cells that have most
FEWEST_ALONE = 4  # pairs of a cell that is convicted by itself, and of a group
CLIPPED = 2.5  # deviations
PRIOR_OF_GROUP = 4  # pairs that the spread of all counts as
PRIOR_OF_CELL = 10
GROSS, FEWEST_GROSS = math.log(1.3), 2  # a slow-down that no noise of steps in turns makes, and its fewest pairs
FEWEST_CELLS = 4  # whose differences tell how far cells differ from each other
SMALLEST = 0.3  # of a cell's tolerance: that of a large group
MOST_EFFECTS = 12
ALONE = 5 / 3  # of a cell's tolerance: what is ruled out for each of many cells beside the group that explains it
FEW_CELLS = 4
APART = 4 / 3  # of a group's: the same for each group
PER_SERVERS = 12  # cells that share the rank servers of a pair
OF_SERVERS = 1 / 8  # of a pair's variance, at most: what all cells of its servers share (benchmarks/pair_spread.py)
ALL, CELL, REST = "all", "cell", "rest"


class Difference(NamedTuple):
    """Of a pair, B from A in logarithms; more is worse. ``error`` is the standard error of the median over steps."""

    by: float
    error: float


@dataclass(frozen=True)
class Group:
    """Cells that share something: ``kind`` is ALL, "package", "engine", "family", "precision", "technique" or CELL."""

    kind: str
    name: str
    cells: frozenset[str]


@dataclass(frozen=True)
class Effect:
    """What moved, and how far. ``groups`` explain it, the first found first; none: the cells that nothing explains.
    ``kind`` and ``name`` are those of the last group; of the others, REST.
    """

    kind: str
    name: str
    groups: tuple[Group, ...]
    cells: tuple[str, ...]
    interval: Interval
    status: Status
    tolerance: float
    pairs: int


def groups_of(traits: Mapping[str, Collection[tuple[str, str]]]) -> list[Group]:
    """All cells, and every proper part of them that has a trait in common, such as ("engine", "zero3"). Of parts with
    the same cells, the first one's name is kept.
    """
    everything = frozenset(traits)
    groups = {everything: Group(ALL, "", everything)}
    for kind, name in dict.fromkeys(trait for of_cell in traits.values() for trait in of_cell):
        cells = frozenset(cell for cell, of_cell in traits.items() if (kind, name) in of_cell)
        if len(cells) > 1:
            groups.setdefault(cells, Group(kind, name, cells))
    return list(groups.values())


class Pool:
    """The pairs of one metric, by cell. ``tolerance`` is the slow-down of a cell that must be detected, ``error`` the
    chance of a red effect without a cause. ``final``: no pairs follow, so a group is ok if it is not slower by the
    tolerance itself, where one that gets more pairs must not be slower by its smaller one (``tolerance_of``).
    """

    def __init__(
        self,
        differences: Mapping[str, Sequence[Difference]],
        groups: Sequence[Group],
        tolerance: float,
        error: float,
        final: bool = False,
    ) -> None:
        self.final = final
        self.differences = {cell: list(of_cell) for cell, of_cell in differences.items() if of_cell}
        here = frozenset(self.differences)
        known = {group.cells & here: replace(group, cells=group.cells & here) for group in reversed(groups)}
        self.groups = [group for group in reversed(known.values()) if group.kind == ALL or len(group.cells) > 1]
        self.tolerance = tolerance
        levels = sum(group.kind != ALL for group in self.groups)
        share = error / (1 + bool(levels) + (len(here) > 1)) / len(LOOKS)
        self._only = len(here) == 1  # a cell that is asked about alone is no group, so nothing of it is clipped
        self._errors = {ALL: share, "": share / max(1, levels), CELL: share / max(1, len(here))}
        self._offsets = dict.fromkeys(here, 0.0)
        self._weights = {
            cell: [1 / (one.error**2 + PRIOR_SPREAD**2) for one in of_cell]
            for cell, of_cell in self.differences.items()
        }
        self.scale = 1.0  # of the deviations: 1 if the pairs' variances are as expected
        self._known: dict[str, tuple[float, float]] = {}  # what _clipped() returns, for this scale and offsets
        self.found = list(self._explain())

    @functools.cached_property
    def effects(self) -> list[Effect]:
        """Every set of cells that the same groups explain, the largest slow-down first; what none explains is last."""
        classes: dict[tuple[Group, ...], list[str]] = {}
        for cell in self.differences:
            classes.setdefault(tuple(one for one in self.found if cell in one.cells), []).append(cell)
        effects = [self._effect(groups, cells) for groups, cells in classes.items()]
        return sorted(effects, key=lambda effect: (not effect.groups, -effect.interval.estimate))

    def of(self, cell: str) -> Effect:
        """What the cell is judged with: the same groups explain it. If its own pairs do not rule out that it is slower
        by too much, alone and beside them, they alone count, and it is open.
        """
        effect = next(one for one in self.effects if cell in one.cells)
        if effect.status != Status.OK or self._most(cell) < self._ruled_out:
            return effect
        alone, pairs = self._of_cell(cell, self._errors[CELL], 0.0), len(self.differences[cell])
        if alone.not_slower(self.tolerance):
            return effect
        return Effect(CELL, cell, effect.groups, (cell,), alone, Status.OPEN, self.tolerance, pairs)

    @property
    def _ruled_out(self) -> float:
        """The slow-down of a cell beside its group that its pairs must rule out: of few cells, the tolerance itself."""
        return math.log1p(self.tolerance * (ALONE if len(self.differences) > FEW_CELLS else 1.0))

    def hopeless(self, cell: str) -> bool:
        """Whether its pairs differ so much that the most that there can be would not rule it out either. Such a cell
        stays open, and further pairs would tell nothing, unless it looks slower: they may show that.
        """
        pairs = len(self.differences[cell])
        known = self._of_cell(cell, MISSED, 0.0)
        if known.estimate > max(known.spread, math.log1p(self.tolerance)):
            return False
        wide = (known.high - known.estimate) * math.sqrt(pairs / LOOKS[-1])
        return pairs >= FEWEST_PAIRS and wide >= self._ruled_out

    def undecided(self) -> dict[str, float]:
        """The cells that may be slower by too much beside what explains them, with how much it may be."""
        open_cells = {cell: high for cell in self.differences if (high := self._most(cell)) >= self._ruled_out}
        for group in self.groups:
            high = self._of_group(tuple(group.cells), MISSED, others=False).high
            if group not in self.found and high >= math.log1p(self.tolerance_of(len(group.cells)) * APART):
                open_cells |= {cell: max(high, open_cells.get(cell, high)) for cell in group.cells}
        return open_cells

    def tolerance_of(self, cells: int) -> float:
        """The slow-down of so many cells that must be detected: the more, the smaller."""
        return self.tolerance * max(SMALLEST, 1 / math.sqrt(cells))

    def _effect(self, groups: tuple[Group, ...], cells: Sequence[str]) -> Effect:
        alone = self._only or any(group.kind == CELL for group in groups)
        error = self._error(groups[-1]) if groups else self._errors[ALL]
        interval = self._of_cell(cells[0], error, 0.0) if alone else self._of_group(cells, error, raw=True)
        tolerance = self.tolerance_of(len(cells))
        status, decided = interval.decide(tolerance)
        pairs = self._count(cells)
        if not groups and status in (Status.REGRESSED, Status.IMPROVED):
            status = Status.OPEN  # no group explains it, so it has not been shown
        these = interval if alone else self._of_group(cells, error, raw=True, others=False)
        faster = statistics.fmean(map(self._mean, cells)) < -math.log1p(tolerance)
        soon = (
            faster and not self._only and pairs < FEWEST_ALONE
        )  # another pair can show that; until then its mean is clipped
        if status == Status.OPEN and not soon and these.not_slower(tolerance):
            status, decided = Status.OK, these.narrow
        if status == Status.OPEN and self.final and these.not_slower(self.tolerance):
            status, decided, tolerance = Status.OK, these.narrow, self.tolerance
        if pairs < _fewest(interval, FEWEST_PAIRS):
            status, decided = Status.OPEN, interval
        last = groups[-1] if groups else Group(REST if self.found else ALL, "", frozenset(cells))
        return Effect(last.kind, last.name, groups, tuple(cells), decided, status, tolerance, pairs)

    def _most(self, cell: str) -> float:
        """How much slower a cell may be than what explains it; nothing for one that is convicted by itself."""
        if any(group.kind == CELL and cell in group.cells for group in self.found):
            return 0.0
        return self._of_cell(cell, MISSED, self._offsets[cell]).high

    def _error(self, group: Group) -> float:
        return self._errors.get(group.kind, self._errors[""])

    def _explain(self) -> Iterator[Group]:
        """The groups and cells that moved, in the order of their significance."""
        for _ in range(MOST_EFFECTS):
            self._rescale()
            best = max(self._significant(), key=lambda one: one[0], default=None)
            if best is None:
                return
            group = self._widened(best[1])
            for _ in range(3):  # the clipped mean converges
                by = self._of_group(tuple(group.cells), 0.5).estimate if group.kind != CELL else self._alone(group)
                for cell in group.cells:
                    self._offsets[cell] += by
                    self._known.pop(cell, None)
            yield group
        self._rescale()

    def _widened(self, group: Group) -> Group:
        """The largest group with these cells whose other cells are nearer to them than to what is explained already."""
        here = self._of_group(tuple(group.cells), 0.5).estimate
        for larger in sorted(self.groups, key=lambda one: -len(one.cells)):
            others = larger.cells - group.cells
            if larger.cells > group.cells and self._of_group(tuple(others), 0.5).estimate / here > 1 / 2:
                return larger
        return group

    def _alone(self, group: Group) -> float:
        [cell] = group.cells
        return self._mean(cell) - self._offsets[cell]

    def _mean(self, cell: str) -> float:
        weighted = zip(self._weights[cell], self.differences[cell], strict=True)
        return sum(weight * one.by for weight, one in weighted) / sum(self._weights[cell])

    def _significant(self) -> Iterator[tuple[float, Group]]:
        for group in () if self._only else self.groups:
            if self._count(group.cells) >= FEWEST_ALONE:
                yield from self._if_shown(self._of_group(tuple(group.cells), self._error(group)), group)
        for cell, differences in self.differences.items():
            beyond = self._of_cell(cell, self._errors[CELL], self._offsets[cell])
            if len(differences) >= _fewest(beyond, FEWEST_PAIRS if self._only else FEWEST_ALONE):
                yield from self._if_shown(beyond, Group(CELL, cell, frozenset([cell])))

    def _count(self, cells: Iterable[str]) -> int:
        """Their pairs."""
        return sum(len(self.differences[cell]) for cell in cells)

    @staticmethod
    def _if_shown(interval: Interval, group: Group) -> Iterator[tuple[float, Group]]:
        if interval.low > 0 or interval.high < 0:
            yield abs(interval.estimate) / interval.spread, group

    def _rescale(self) -> None:
        """The deviations from what is explained: of pairs from their cell, or of all if few cells have several."""
        several = [cell for cell, of_cell in self.differences.items() if len(of_cell) > 1]
        centers = {cell: self._mean(cell) for cell in several}
        freedom = self._count(several) - len(several)
        if freedom < len(self.differences):
            centers, freedom = self._offsets, self._count(self.differences) - 1
        deviations = [
            abs(difference.by - center) * math.sqrt(weight)
            for cell, center in centers.items()
            for difference, weight in zip(self.differences[cell], self._weights[cell], strict=True)
        ]
        self._known.clear()
        if freedom < 1:
            return
        scale = MAD * statistics.median(deviations) * math.sqrt(len(deviations) / freedom)
        self.scale = math.sqrt((PRIOR_OF_GROUP + freedom * scale**2) / (PRIOR_OF_GROUP + freedom))

    def _of_group(self, cells: Sequence[str], error: float, raw: bool = False, others: bool = True) -> Interval:
        """Of the mean of the cells' pairs: what is not explained yet, or all of it if ``raw``. That a group is slower
        is said of ``others`` like its cells too; that it is not, of these cells alone.
        """
        means, weights, squares = [], [], 0.0
        for cell in cells:
            mean, of_cell = self._clipped(cell)
            means.append(mean + (self._offsets[cell] if raw else 0.0))
            weights.append(sum(self._weights[cell]))
            squares += of_cell
        total, count = sum(weights), self._count(cells)
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
            offset, weights = self._offsets[cell], self._weights[cell]
            clipped = []
            for difference, weight in zip(self.differences[cell], weights, strict=True):
                most = CLIPPED * self.scale / math.sqrt(weight)
                clipped.append(max(-most, min(most, difference.by - offset)))
            mean = sum(weight * one for weight, one in zip(weights, clipped, strict=True)) / sum(weights)
            squares = sum(weight * (one - mean) ** 2 for weight, one in zip(weights, clipped, strict=True))
            known = self._known[cell] = mean, squares
        return known

    def _of_cell(self, cell: str, error: float, offset: float) -> Interval:
        """Of the mean of its own pairs, beyond the offset."""
        weights, mean = self._weights[cell], self._mean(cell)
        squares = sum(
            weight * (difference.by - mean) ** 2
            for weight, difference in zip(weights, self.differences[cell], strict=True)
        )
        prior = PRIOR_OF_GROUP if self._only else PRIOR_OF_CELL
        freedom = prior + len(weights) - 1
        variance = (prior * self.scale**2 + squares) / freedom / sum(weights)
        return Interval(mean - offset, math.sqrt(variance), freedom, error)


def _fewest(interval: Interval, usual: int) -> int:
    """How many pairs must have said it."""
    return FEWEST_GROSS if interval.low > GROSS else usual


def open_cells(pools: Sequence[Pool]) -> list[str]:
    """The cells that need another pair, the most suspicious first: their own slow-down is not ruled out, or that of
    those that share it is neither shown nor ruled out. A cell whose pairs are hopeless needs none.
    """
    needs: dict[str, float] = {}
    for pool in pools:
        undecided = list(pool.undecided().items())
        shared = [effect for effect in pool.effects if effect.status == Status.OPEN]
        undecided += [(cell, effect.interval.high) for effect in shared for cell in effect.cells]
        for cell, high in undecided:
            if not pool.hopeless(cell):
                needs[cell] = max(needs.get(cell, -math.inf), high)
    return sorted(needs, key=lambda cell: (-needs[cell], cell))
