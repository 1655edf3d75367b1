"""The grid trial: all cells of a run against another environment, as one question.

    a pair of launches of every cell → what moved together, and which cells differ → more pairs where that is open → …

Cells share rank servers, which take longer to start than a pair of most cells, but never all of them: what a server
does to times must be noise between pairs. Each finished pair is kept in the cache folder, so a run that was killed goes
on where it was.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfsuite.catalog.cell import Cell
from perfsuite.compare.compare import Comparison
from perfsuite.compare.pooling import LOOKS, PER_SERVERS, Effect, Pool, groups_of, open_cells
from perfsuite.compare.terms import MOST_RED_RATE
from perfsuite.environments.environments import Environment
from perfsuite.errors import PerfsuiteError
from perfsuite.records.change import Change
from perfsuite.records.deadline import OutOfTime, check
from perfsuite.run.ab import Experiment
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.pairs import Pairs
from perfsuite.run.trial import Trial

PAIR_SECONDS = 1.0  # for the timed steps of both sides: many cells are worth more than many steps of one
PRECISIONS = ("fp16", "bf16", "pure_bf16", "fp8")


@dataclass(frozen=True)
class Progress:
    """Before a round of pairs: ``waiting`` cells of all ``cells`` get their pair number ``number``. ``seconds`` is how
    long the round takes, None if nothing tells. ``effects`` is what is known, by metric.
    """

    number: int
    waiting: int
    cells: int
    seconds: float | None = None
    effects: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    known: int = 0  # pairs of a run that was broken off


class _Servers(NamedTuple):
    """What cells must have in common to share rank servers."""

    a: Environment
    b: Environment


class Grid:
    """``step_seconds`` are hints, by the cell's id. ``tell`` gets the progress. ``kept`` changes stay on side B."""

    def __init__(
        self,
        trial: Trial,
        changes: Sequence[Change],
        cells: Sequence[Cell],
        store: KeptPairs,
        step_seconds: Mapping[str, float] = {},
        tell: Callable[[Progress], None] = lambda progress: None,
        kept: Sequence[Change] = (),
        faults: Sequence[str] = (),
    ) -> None:
        self.trial, self.changes, self.cells, self.store = trial, changes, list(cells), store
        self.hints, self.tell, self.kept, self.faults = step_seconds, tell, kept, faults
        self.problems: dict[str, PerfsuiteError] = {}  # of cells that a side does not have
        self.pairs: dict[str, Pairs] = {}
        self._experiments: dict[str, Experiment] = {}
        self._seconds: list[float] = []  # that a pair took
        self.pools: dict[str, Pool] = {}
        self.unfinished = ""  # why it ended before everything was decided

    def run(self) -> None:
        """Launch pairs until everything is decided, or time is used up: then ``unfinished`` says so."""
        try:
            known = self._begin()
            waiting = list(self.pairs)
            for number in range(1, LOOKS[-1] + 1):
                behind = [cell for cell in waiting if len(self.pairs[cell]) < number]
                if behind:
                    seconds = self._expected(len(behind))
                    effects = {name: pool.effects() for name, pool in self.pools.items()}
                    self.tell(Progress(number, len(behind), len(self.pairs), seconds, effects, known))
                    known = 0
                    self._round(behind)
                if number in LOOKS:
                    self.pools = self._pooled()
                    waiting = [cell for cell in open_cells(list(self.pools.values())) if not self.pairs[cell].failed]
                if not waiting:
                    break
        except OutOfTime as error:
            self.unfinished = str(error)
            self.pools = self._pooled()
        else:
            self.store.forget()

    def has(self, cell: Cell) -> bool:
        """Whether the cell was compared, or why not is known."""
        return cell.id in self.problems or len(self.pairs.get(cell.id, ())) > 0

    def comparison(self, cell: Cell) -> Comparison:
        """What its pairs say, together with those of the cells that it is judged with. Raises PerfsuiteError for a cell
        that a side does not have.
        """
        if cell.id in self.problems:
            raise self.problems[cell.id]
        effects = {name: effect for name in self.pools if (effect := self.effect(name, cell.id)) is not None}
        return self._experiments[cell.id].result(self.pairs[cell.id], pooled=effects)

    def effect(self, metric: str, cell: str) -> Effect | None:
        """What the cell's pairs of a time belong to."""
        return next((effect for effect in self.pools[metric].effects() if cell in effect.cells), None)

    def _begin(self) -> int:
        """Prepare every cell, and read what a run that was broken off has left; the number of its pairs."""
        for cell in self.cells:
            check()
            try:
                experiment = self.trial.experiment(cell, self.changes, self.kept)
                both = experiment.cells[0]
                hint = self.hints.get(cell.id) or experiment.step_seconds(both, self.trial.watch)
            except OutOfTime:
                raise
            except PerfsuiteError as error:
                self.problems[cell.id] = error
                continue
            self._experiments[cell.id] = experiment
            self.pairs[cell.id] = experiment.pairs_of(both, hint, PAIR_SECONDS, ((), self.faults))
        for pair in self.store.load():
            if pair.cell in self.pairs:
                self.pairs[pair.cell].keep(pair.a, pair.b)
        return sum(map(len, self.pairs.values()))

    def _round(self, waiting: Sequence[str]) -> None:
        """One more pair of each of these cells, in random order."""
        for cells in self._sharing(waiting):
            check()
            with self._experiments[cells[0]].runners() as runners:
                for cell in cells:
                    check()
                    begin = time.monotonic()
                    while not self.pairs[cell].add(runners, self.trial.watch):
                        pass
                    self._seconds.append(time.monotonic() - begin)
                    a, b = (side[-1] for side in self.pairs[cell].launches)
                    self.store.add(cell, a, b)

    def _sharing(self, waiting: Sequence[str]) -> Iterator[list[str]]:
        """Cells that share rank servers."""
        groups: dict[str, list[str]] = {}
        for cell in random.sample(list(waiting), len(waiting)):
            one, other = (side.environment for side in self._experiments[cell].sides)
            groups.setdefault(repr(_Servers(one, other)), []).append(cell)
        for cells in groups.values():
            for at in range(0, len(cells), PER_SERVERS):
                yield cells[at : at + PER_SERVERS]

    def _pooled(self) -> dict[str, Pool]:
        """The pairs of every time, over all cells that have it."""
        measured = {cell: pairs for cell, pairs in self.pairs.items() if len(pairs) and not pairs.failed}
        timed = {metric.name: metric for pairs in measured.values() for metric in pairs.timed}
        groups = groups_of({cell: traits_of(pairs.cells[1]) for cell, pairs in measured.items()})
        pools = {}
        for name, metric in timed.items():
            differences = {
                cell: pairs.differences(metric)
                for cell, pairs in measured.items()
                if any(one.name == name for one in pairs.timed)
            }
            some = self._experiments[next(iter(differences))]
            tolerance = some.terms(some.cells[0][1]).tolerance_of(metric)
            pools[name] = Pool(differences, groups, tolerance, MOST_RED_RATE / len(timed))
        return pools

    def _expected(self, waiting: int) -> float | None:
        """The seconds of a round with so many cells, servers included."""
        if not self._seconds:
            return None
        return waiting * sum(self._seconds) / len(self._seconds)


def traits_of(cell: Cell) -> list[tuple[str, str]]:
    """What the cell shares with others: the packages that it runs, its engine, family, precision and techniques."""
    names = [choice.name for choice in cell.strategy.choices]
    precision = next((name for name in names if name in PRECISIONS), "fp32")
    return [
        *(("package", package) for package in cell.strategy.packages),
        ("engine", cell.strategy.engine.name),
        ("family", cell.model.family),
        ("precision", precision),
        *(("technique", name) for name in names if name != precision),
    ]
