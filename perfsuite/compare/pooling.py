"""The pairs of a whole grid as one body of evidence: what moved together, and which cells differ from it.

A cell's pair spreads by 1 to 3 %, so one pair of it says little. A hundred cells with a pair each know a slow-down that
all share to some tenths of a per cent. Every cell belongs to groups: all cells, those that run a package, an engine, a
family of models, a precision, a technique. What moved is the smallest set of groups and cells that explains the pairs:
the one with the largest t statistic is taken, its effect is subtracted, and so on until none is significant (forward
selection; Pati et al. 1993, "Orthogonal matching pursuit", for the subtraction). A larger group is named instead if its
other cells are nearer to these than to no effect.

compare/pooled_pairs.py has the intervals of cells and groups.

The chance that anything is red without a cause is ``error`` for the whole run. All cells, the groups and the single
cells, as far as there are any, share it in equal parts; each hypothesis and each look has its share (Bonferroni).
`python benchmarks/grid_error_rates.py` simulates it and the constants.
"""

import functools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perfsuite.compare.grid_groups import ALL, CELL, REST, Effect, Group
from perfsuite.compare.paired import FEWEST_PAIRS, MISSED, Interval
from perfsuite.compare.pooled_pairs import Difference, PooledPairs
from perfsuite.records.verdict import Status

LOOKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # pairs of the cells that have most
FEWEST_ALONE = 4  # pairs of a cell that is convicted by itself, and of a group
GROSS, FEWEST_GROSS = math.log(1.3), 2  # a slow-down that no noise of steps in turns makes, and its fewest pairs
SMALLEST = 0.3  # of a cell's tolerance: that of a large group
MOST_EFFECTS = 12
ALONE = 5 / 3  # of a cell's tolerance: what is ruled out for each of many cells beside the group that explains it
FEW_CELLS = 4
APART = 4 / 3  # of a group's: the same for each group


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
        self.pairs = PooledPairs(differences)
        self.differences = self.pairs.differences
        here = frozenset(self.differences)
        known = {group.cells & here: replace(group, cells=group.cells & here) for group in reversed(groups)}
        self.groups = [group for group in reversed(known.values()) if group.kind == ALL or len(group.cells) > 1]
        self.tolerance = tolerance
        levels = sum(group.kind != ALL for group in self.groups)
        share = error / (1 + bool(levels) + (len(here) > 1)) / len(LOOKS)
        self._errors = {ALL: share, "": share / max(1, levels), CELL: share / max(1, len(here))}
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
        alone, pairs = self.pairs.of_cell(cell, self._errors[CELL], 0.0), len(self.differences[cell])
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
        known = self.pairs.of_cell(cell, MISSED, 0.0)
        if known.estimate > max(known.spread, math.log1p(self.tolerance)):
            return False
        wide = (known.high - known.estimate) * math.sqrt(pairs / LOOKS[-1])
        return pairs >= FEWEST_PAIRS and wide >= self._ruled_out

    def undecided(self) -> dict[str, float]:
        """The cells that may be slower by too much beside what explains them, with how much it may be."""
        open_cells = {cell: high for cell in self.differences if (high := self._most(cell)) >= self._ruled_out}
        for group in self.groups:
            high = self.pairs.of_group(tuple(group.cells), MISSED, others=False).high
            if group not in self.found and high >= math.log1p(self.tolerance_of(len(group.cells)) * APART):
                open_cells |= {cell: max(high, open_cells.get(cell, high)) for cell in group.cells}
        return open_cells

    def tolerance_of(self, cells: int) -> float:
        """The slow-down of so many cells that must be detected: the more, the smaller."""
        return self.tolerance * max(SMALLEST, 1 / math.sqrt(cells))

    def _effect(self, groups: tuple[Group, ...], cells: Sequence[str]) -> Effect:
        alone = self.pairs.of_one_cell or any(group.kind == CELL for group in groups)
        error = self._error(groups[-1]) if groups else self._errors[ALL]
        interval = self.pairs.of_cell(cells[0], error, 0.0) if alone else self.pairs.of_group(cells, error, raw=True)
        tolerance = self.tolerance_of(len(cells))
        status, decided = interval.decide(tolerance)
        pairs = self.pairs.count(cells)
        if not groups and status in (Status.REGRESSED, Status.IMPROVED):
            status = Status.OPEN  # no group explains it, so it has not been shown
        these = interval if alone else self.pairs.of_group(cells, error, raw=True, others=False)
        faster = statistics.fmean(map(self.pairs.mean, cells)) < -math.log1p(tolerance)
        soon = (
            faster and not self.pairs.of_one_cell and pairs < FEWEST_ALONE
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
        return self.pairs.of_cell(cell, MISSED, self.pairs.offsets[cell]).high

    def _error(self, group: Group) -> float:
        return self._errors.get(group.kind, self._errors[""])

    def _explain(self) -> Iterator[Group]:
        """The groups and cells that moved, in the order of their significance."""
        for _ in range(MOST_EFFECTS):
            self.pairs.rescale()
            best = max(self._significant(), key=lambda one: one[0], default=None)
            if best is None:
                return
            group = self._widened(best[1])
            for _ in range(3):  # the clipped mean converges
                by = self.pairs.of_group(tuple(group.cells), 0.5).estimate if group.kind != CELL else self._alone(group)
                self.pairs.explain(group.cells, by)
            yield group
        self.pairs.rescale()

    def _widened(self, group: Group) -> Group:
        """The largest group with these cells whose other cells are nearer to them than to what is explained already."""
        here = self.pairs.of_group(tuple(group.cells), 0.5).estimate
        for larger in sorted(self.groups, key=lambda one: -len(one.cells)):
            others = larger.cells - group.cells
            if larger.cells > group.cells and self.pairs.of_group(tuple(others), 0.5).estimate / here > 1 / 2:
                return larger
        return group

    def _alone(self, group: Group) -> float:
        [cell] = group.cells
        return self.pairs.mean(cell) - self.pairs.offsets[cell]

    def _significant(self) -> Iterator[tuple[float, Group]]:
        for group in () if self.pairs.of_one_cell else self.groups:
            if self.pairs.count(group.cells) >= FEWEST_ALONE:
                yield from self._if_shown(self.pairs.of_group(tuple(group.cells), self._error(group)), group)
        for cell, differences in self.differences.items():
            beyond = self.pairs.of_cell(cell, self._errors[CELL], self.pairs.offsets[cell])
            if len(differences) >= _fewest(beyond, FEWEST_PAIRS if self.pairs.of_one_cell else FEWEST_ALONE):
                yield from self._if_shown(beyond, Group(CELL, cell, frozenset([cell])))

    @staticmethod
    def _if_shown(interval: Interval, group: Group) -> Iterator[tuple[float, Group]]:
        if interval.low > 0 or interval.high < 0:
            yield abs(interval.estimate) / interval.spread, group


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
