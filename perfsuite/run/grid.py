"""The grid trial: all cells of a run against another environment, as one question.

    a pair of launches of every cell → what moved together, and which cells differ → more pairs where that is open → …

Cells share rank servers, which take longer to start than a pair of most cells, but never all of them: what a server
does to times must be noise between pairs. Each finished pair is kept in the cache folder, so a run that was killed goes
on where it was.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import HALF_PRECISION
from perfsuite.compare.compare import Comparison
from perfsuite.compare.pooling import LOOKS, PER_SERVERS, Effect, Pool, groups_of, open_cells
from perfsuite.compare.terms import MOST_RED_RATE
from perfsuite.errors import PerfsuiteError
from perfsuite.records.deadline import OutOfTime, check
from perfsuite.run.ab import Experiment
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.pairs import Pairs
from perfsuite.run.runner import ModelFlop, Watch

# For the timed steps of both sides of a pair: many cells are worth more than many steps of one. Steps of several ranks
# differ ten times as much as those of one, so they need more.
PAIR_SECONDS, OF_SEVERAL_RANKS = 1.0, 2.0
MOST_WARMUP = 3  # behind the recorded steps: on a CPU no later step is slower than the others


@dataclass(frozen=True)
class Progress:
    """Before a round of pairs: ``waiting`` cells of all ``cells`` get their pair number ``number``. ``seconds`` is how
    long the round takes, None if nothing tells. ``effects`` is what is known, by the metric's title.
    """

    number: int
    waiting: int
    cells: int
    seconds: float | None = None
    effects: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    known: int = 0  # pairs of a run that was broken off


class Grid:
    """``make`` gives the A/B of a cell, and raises PerfsuiteError for one that a side does not have. ``step_seconds``
    are hints, by the cell's id. ``tell`` gets the progress. ``faults`` are those of side B. ``share`` is this trial's
    part of the error that a run is allowed.
    """

    def __init__(
        self,
        make: Callable[[Cell], Experiment],
        cells: Sequence[Cell],
        store: KeptPairs,
        watch: Watch,
        *,
        step_seconds: Mapping[str, float] | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
        faults: Sequence[str] = (),
        share: float = 1.0,
    ) -> None:
        self.cells, self.hints, self.unfinished = list(cells), step_seconds or {}, ""
        self.pools: dict[str, Pool] = {}  # by metric
        self.pairs: dict[str, Pairs] = {}  # by cell
        self.problems: dict[str, PerfsuiteError] = {}  # of cells that a side does not have
        self._make, self._store, self._watch, self._tell, self._faults = make, store, watch, tell, faults
        self._experiments: dict[str, Experiment] = {}
        self._flop: dict[str, tuple[ModelFlop, ModelFlop]] = {}  # of both sides, by what shares their servers
        self._seconds: list[float] = []  # that a pair took
        self._titles: dict[str, str] = {}  # of metrics
        self._error = MOST_RED_RATE * share

    def run(self) -> None:
        """Launch pairs until everything is decided, or time is used up: then ``unfinished`` says so."""
        try:
            known = self._begin()
            waiting = list(self.pairs)
            for number in range(1, LOOKS[-1] + 1):
                behind = [cell for cell in waiting if len(self.pairs[cell]) < number]
                if behind:
                    seconds = self._expected(len(behind))
                    self._tell(Progress(number, len(behind), len(self.pairs), seconds, self._moved(), known))
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
            self._store.forget()

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
        """What the cell's pairs of a time are judged with; None if it has none."""
        pool = self.pools[metric]
        return pool.of(cell) if cell in pool.differences else None

    def _begin(self) -> int:
        """Prepare every cell, and read what a run that was broken off has left; the number of its pairs."""
        for cell in self.cells:
            check()
            try:
                experiment = self._make(cell)
                both = experiment.cells[0]
                hint = self.hints.get(cell.id) or experiment.step_seconds(both, self._watch)
            except OutOfTime:
                raise
            except PerfsuiteError as error:
                self.problems[cell.id] = error
                continue
            seconds = OF_SEVERAL_RANKS if cell.hardware.world_size > 1 else PAIR_SECONDS
            self._experiments[cell.id] = experiment
            pairs = self.pairs[cell.id] = experiment.pairs_of(both, hint, seconds, ((), self._faults))
            if cell.hardware.device is None:  # no step of a CPU runs ahead of a device, so a block tells no more
                warmup = min(pairs.settings.warmup, MOST_WARMUP)
                pairs.settings = replace(pairs.settings, unfenced=False, warmup=warmup)
        for pair in self._store.load():
            if pair.cell in self.pairs:
                self.pairs[pair.cell].keep(pair.a, pair.b)
        return sum(map(len, self.pairs.values()))

    def _round(self, waiting: Sequence[str]) -> None:
        """One more pair of each of these cells, in random order."""
        for cells in self._chunks(waiting):
            check()
            first = self._experiments[cells[0]]
            counted = self._flop.setdefault(_sharing(first), ({}, {}))
            with first.runners() as runners:
                for runner, known in zip(runners, counted, strict=True):
                    runner.model_flop = known
                for cell in cells:
                    check()
                    begin = time.monotonic()
                    while not self.pairs[cell].add(runners, self._watch):
                        pass
                    self._seconds.append(time.monotonic() - begin)
                    a, b = (side[-1] for side in self.pairs[cell].launches)
                    self._store.add(cell, a, b)

    def _chunks(self, waiting: Sequence[str]) -> Iterator[list[str]]:
        """Cells that share rank servers."""
        groups: dict[str, list[str]] = {}
        for cell in random.sample(list(waiting), len(waiting)):
            groups.setdefault(_sharing(self._experiments[cell]), []).append(cell)
        for cells in groups.values():
            for at in range(0, len(cells), PER_SERVERS):
                yield cells[at : at + PER_SERVERS]

    def _pooled(self) -> dict[str, Pool]:
        """The pairs of every time, over all cells that have it."""
        measured = {cell: pairs for cell, pairs in self.pairs.items() if len(pairs) and not pairs.failed}
        timed = {metric.name: metric for pairs in measured.values() for metric in pairs.timed}
        self._titles = {name: metric.title for name, metric in timed.items()}
        groups = groups_of({cell: traits_of(pairs.cells[1]) for cell, pairs in measured.items()})
        pools = {}
        for name, metric in timed.items():
            differences = {
                cell: pairs.with_errors(metric)
                for cell, pairs in measured.items()
                if any(one.name == name for one in pairs.timed)
            }
            some = self._experiments[next(iter(differences))]
            tolerance = some.terms(some.cells[0][1]).tolerance_of(metric)
            pools[name] = Pool(differences, groups, tolerance, self._error / len(timed))
        return pools

    def _moved(self) -> dict[str, list[Effect]]:
        """What is known of the times that most cells have, by their titles."""
        most = max((len(pool.differences) for pool in self.pools.values()), default=0)
        known = {name: pool for name, pool in self.pools.items() if len(pool.differences) == most}
        return {self._titles[name]: pool.effects for name, pool in known.items()}

    def _expected(self, waiting: int) -> float | None:
        """The seconds of a round with so many cells, servers included."""
        if not self._seconds:
            return None
        return waiting * sum(self._seconds) / len(self._seconds)


def _sharing(experiment: Experiment) -> str:
    """What cells must have in common to share rank servers: the environments of both sides."""
    return repr([side.environment for side in experiment.sides])


def traits_of(cell: Cell) -> list[tuple[str, str]]:
    """What the cell shares with others: the packages that it runs, its engine, family, precision and techniques."""
    names = [choice.name for choice in cell.strategy.choices]
    precision = next((name for name in names if name in HALF_PRECISION), "fp32")
    return [
        *(("package", package) for package in cell.strategy.packages),
        ("engine", cell.strategy.engine.name),
        ("family", cell.model.family),
        ("precision", precision),
        *(("technique", name) for name in names if name != precision),
    ]
