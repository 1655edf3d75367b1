"""The one comparison: is side B worse than side A, for these cells?

    exact metrics    one launch of each cell on each side
    times            a pair of launches of every cell → what moved together, and which cells differ → more pairs where
                     that is open → …, until everything is decided or the time is used up

Every comparison of environments is a Question: a baseline's environment against this one (run/trial.py), a revision or
a release (run/against.py), `ab`, `upgrade`, `replay`, and each attempt of the search for causes (run/causes.py).

Cells share rank servers, which take longer to start than a pair of most cells, but never all of them: what a server
does to times must be noise between pairs. Each finished pair is kept in the cache folder, so a run that was killed goes
on where it was.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import HALF_PRECISION
from perfsuite.compare.compare import Comparison, compare, with_times
from perfsuite.compare.grid_groups import Effect, groups_of
from perfsuite.compare.noise import student
from perfsuite.compare.paired import MISSED
from perfsuite.compare.pooled_pairs import PER_SERVERS
from perfsuite.compare.pooling import LOOKS, Pool, open_cells
from perfsuite.compare.rounds import Round
from perfsuite.compare.terms import MOST_RED_RATE
from perfsuite.environments.environments import Environment
from perfsuite.errors import PerfsuiteError
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.verdict import Status
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.measuring import Measuring
from perfsuite.run.pairs import PairDesign, Pairs, interleave_of
from perfsuite.run.runner import ModelFlop, Runner
from perfsuite.run.sides import Side
from perfsuite.system.deadline import OutOfTime, check, left, let_finish
from perfsuite.system.machine import version_of

# For the timed steps of both sides of a pair: many cells are worth more than many steps of one. Steps of several ranks
# differ ten times as much as those of one, so they need more. Few cells share the cost of their servers.
PAIR_SECONDS, OF_SEVERAL_RANKS, OF_FEW_CELLS = 1.0, 1.5, 3.0
SHORT_STEPS = 5
FEWEST_ROUNDS = 2  # that a group of cells needs, however short its time: a pair alone has no spread
MANY = 30  # degrees of freedom, of which more make an interval hardly narrower
A, B = 0, 1


@dataclass
class Question:
    """``a`` and ``b`` are the sides, ``names`` the cells. ``known`` are launches by side and cell that need not be made
    again. ``step_seconds`` are hints, by cell. ``tell`` hears of each round. ``share`` is this question's part of the
    error that a run is allowed. ``most_pairs`` limits the pairs of each cell. ``interleave`` is "steps" or "launches",
    by default that of the hardware. ``close()`` ends the rank servers of exact metrics, which stay for the next cell.
    """

    how: Measuring
    a: Side
    b: Side
    names: Sequence[str]
    known: dict[tuple[int, str], Measurement] = field(default_factory=dict)
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    store: KeptPairs = field(default_factory=KeptPairs)
    tell: Callable[[Round], None] = lambda progress: None
    share: float = 1.0
    most_pairs: int = LOOKS[-1]
    interleave: str | None = None
    cells: dict[str, tuple[Cell, Cell]] = field(init=False, default_factory=dict)
    problems: dict[str, PerfsuiteError] = field(init=False, default_factory=dict)  # of cells that a side lacks
    pairs: dict[str, Pairs] = field(init=False, default_factory=dict)
    pools: dict[str, Pool] = field(init=False, default_factory=dict)  # by metric
    known_pairs: int = field(init=False, default=0)  # that were not launched, but kept from an earlier run
    unfinished: str = field(init=False, default="")  # why there are no more pairs, though some cell is open

    def __post_init__(self) -> None:
        self._model_flop: tuple[ModelFlop, ModelFlop] = ({}, {})
        self._pair_seconds: list[float] = []
        self._warm: dict[int, Runner] = {}
        for name in self.names:
            try:
                self.cells[name] = self.a.cell(name), self.b.cell(name)
            except OutOfTime:
                raise
            except PerfsuiteError as error:
                self.problems[name] = error

    def launch_once(self, names: Iterable[str] | None = None) -> None:
        """Launch these cells once on each side, all by default, unless that is known: for exact metrics."""
        asked = [name for name in (self.cells if names is None else names) if name in self.cells]
        for side in (A, B):
            for name in asked:
                if (side, name) in self.known:
                    continue
                check()
                if side not in self._warm:
                    self._warm[side] = self._runner(side)
                measured = self._warm[side].measure(self.cells[name][side], self.how.watch)
                self.known[side, name] = measured

    def close(self) -> None:
        """End the rank servers that exact metrics have used."""
        while self._warm:
            self._warm.popitem()[1].close()

    def exact(self, name: str) -> Comparison:
        """What one launch of each side says; times are not compared. Raises PerfsuiteError for a cell that a side does
        not have.
        """
        self._check_has(name)
        self.launch_once([name])
        return self._compared(name, [self.known[A, name]], [self.known[B, name]], None)

    def compare_times(self, names: Iterable[str] | None = None) -> None:
        """Launch pairs of these cells, all by default, until everything is decided. If time is used up before, or the
        user interrupts, what is known stays.
        """
        self.close()
        try:
            left_pairs = self.known_pairs = self._begin(self.cells if names is None else names)
            waiting = list(self.pairs)
            for number in range(1, max(look for look in LOOKS if look <= self.most_pairs) + 1):
                behind = [name for name in waiting if len(self.pairs[name]) < number]
                if behind:
                    counts, seconds = (number, len(behind), len(self.pairs)), self._expected(behind)
                    with let_finish(seconds if seconds and number > FEWEST_ROUNDS else 0.0):
                        self.tell(Round(*counts, seconds, left(), self._moved(), left_pairs))
                        self._launch_pairs(behind)
                    left_pairs = 0
                if number in LOOKS:
                    self.pools = self._pooled()
                    waiting = [name for name in open_cells(list(self.pools.values())) if not self._is_decided(name)]
                if not waiting:
                    break
        except OutOfTime as error:
            self.unfinished = str(error)
            self.pools = self._pooled(final=True)
        except KeyboardInterrupt:
            self.pools = self._pooled(final=True)
            raise
        else:
            self.pools = self._pooled(final=True)
            self.store.finish()

    def is_answered(self, name: str) -> bool:
        """Whether anything of both sides is known, so that comparing them launches nothing."""
        return len(self.pairs.get(name, ())) > 0 or {(A, name), (B, name)} <= self.known.keys()

    def comparison(self, name: str) -> Comparison:
        """What is known of the cell: its exact metrics, if both sides were launched for them, and its times, by its
        pairs together with those of the cells that it is judged with. Raises PerfsuiteError if a side lacks the cell.
        """
        self._check_has(name)
        timed = self._by_pairs(name) if len(self.pairs.get(name, ())) else None
        if timed and not {(A, name), (B, name)} <= self.known.keys():
            return timed
        exact = self.exact(name)
        return with_times(exact, timed) if timed else exact

    def _by_pairs(self, name: str) -> Comparison:
        effects = {metric: effect for metric in self.pools if (effect := self.effect(metric, name)) is not None}
        return self._compared(name, *self.pairs[name].launches, effects)

    def effect(self, metric: str, name: str) -> Effect | None:
        """What the cell's pairs of a time are judged with; None if it has none."""
        pool = self.pools.get(metric)
        return pool.of(name) if pool and name in pool.differences else None

    def seconds_to_close(self, effect: Effect) -> float:
        """About how long it takes until more pairs of these cells rule a slow-down out: an interval shrinks with the
        square root of their number.
        """
        at, sure = effect.interval, student(1 - MISSED, MANY)
        room = max(effect.tolerance / 4, effect.tolerance - abs(at.estimate))
        times = max(1.0, (sure * at.spread / room) ** 2) - 1
        return times * effect.pairs * self._seconds_of_pair()

    def _check_has(self, name: str) -> None:
        if name in self.problems:
            raise self.problems[name]

    def _compared(
        self, name: str, a: Sequence[Measurement], b: Sequence[Measurement], pooled: Mapping[str, Effect] | None
    ) -> Comparison:
        one, other = self.cells[name]
        return compare(
            a,
            b,
            self.how.metrics(other),
            strategies=(one.strategy.name, other.strategy.name),
            terms=self.how.terms(other),
            installed=_installed(self.a.environment, self.b.environment),
            pooled=pooled,
        )

    def _runner(self, side: int) -> Runner:
        where = (self.a, self.b)[side]
        runner = Runner(where.catalog, self.how.settings, where.environment)
        runner.model_flop = self._model_flop[side]
        return runner

    @contextlib.contextmanager
    def _runners(self) -> Iterator[list[Runner]]:
        """New rank servers of both sides: their own effect on times must be noise between pairs, not between sides."""
        runners = [self._runner(side) for side in (A, B)]
        with contextlib.closing(runners[A]), contextlib.closing(runners[B]):
            yield runners

    def _begin(self, names: Iterable[str]) -> int:
        """Prepare the cells, and read what a run that was broken off has left; the number of its pairs."""
        chosen = [name for name in names if name in self.cells]
        for name in chosen:
            check()
            both = self.cells[name]
            base = OF_SEVERAL_RANKS if both[B].hardware.world_size > 1 else PAIR_SECONDS
            design = PairDesign(
                seconds=max(base, OF_FEW_CELLS / len(chosen)),
                step_seconds=self.step_seconds.get(name) or self._measured_step(name),
                interleave=self.interleave or interleave_of([both[B].hardware]),
            )
            self.pairs[name] = Pairs.of(both, self.how.metrics(both[B]), self.how.settings, design)
        for pair in self.store.load():
            if pair.cell in self.pairs:
                self.pairs[pair.cell].keep(pair.a, pair.b)
        return sum(map(len, self.pairs.values()))

    def _measured_step(self, name: str) -> float | None:
        """From a short launch, which also compiles what is compiled once; None if it fails, as the first pair will
        report.
        """
        known = self.known.get((B, name))
        if known is None:
            with contextlib.closing(self._runner(B)) as runner:
                runner.settings = replace(runner.settings, steps=SHORT_STEPS)
                known = runner.measure(self.cells[name][B], self.how.watch)
        reading = known.readings.get(STEP_TIME)
        return float(reading.value) if reading else None

    def _launch_pairs(self, waiting: Sequence[str]) -> None:
        """One more pair of each of these cells, in random order."""
        shuffled = random.sample(list(waiting), len(waiting))
        for at in range(0, len(shuffled), PER_SERVERS):
            check()
            begin, names = time.monotonic(), shuffled[at : at + PER_SERVERS]
            with self._runners() as runners:
                for name in names:
                    check()
                    while (pair := self.pairs[name].add(runners, self.how.watch)) is None:
                        pass
                    self.store.add(name, *pair)
            self._pair_seconds += [(time.monotonic() - begin) / len(names)] * len(names)

    def _is_decided(self, name: str) -> bool:
        """Whether more pairs change nothing: one of the cell's times is slower, or a launch did not fit."""
        effects = [self.effect(metric, name) for metric in self.pools]
        return self.pairs[name].failed or any(effect and effect.status == Status.REGRESSED for effect in effects)

    def _pooled(self, final: bool = False) -> dict[str, Pool]:
        """The pairs of every time, over all cells that have it. ``final``: none follow."""
        measured = {name: pairs for name, pairs in self.pairs.items() if len(pairs) and not pairs.failed}
        timed = {metric.name: metric for pairs in measured.values() for metric in pairs.timed}
        groups = groups_of({name: traits_of(pairs.cells[B]) for name, pairs in measured.items()})
        pools = {}
        for metric in timed.values():
            differences = {
                name: pairs.differences(metric)
                for name, pairs in measured.items()
                if metric.name in [each.name for each in pairs.timed]
            }
            some = self.pairs[next(iter(differences))].cells[B]
            tolerance = self.how.terms(some).tolerance_of(metric)
            error = MOST_RED_RATE * self.share / len(timed)
            pools[metric.name] = Pool(differences, groups, tolerance, error, final)
        return pools

    def _moved(self) -> dict[str, list[Effect]]:
        """What is known of the times that most cells have, by their titles."""
        most = max((len(pool.differences) for pool in self.pools.values()), default=0)
        titles = {metric.name: metric.title for pairs in self.pairs.values() for metric in pairs.metrics}
        return {titles[name]: pool.effects for name, pool in self.pools.items() if len(pool.differences) == most}

    def _expected(self, waiting: Sequence[str]) -> float | None:
        """The seconds of a round with these cells, servers included."""
        return len(waiting) * self._seconds_of_pair() if self._pair_seconds else None

    def _seconds_of_pair(self) -> float:
        return sum(self._pair_seconds) / max(1, len(self._pair_seconds))


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


def _installed(a: Environment, b: Environment) -> tuple[dict[str, str], dict[str, str]]:
    """Each side's versions of the packages installed for either side, without those that it does not have."""
    inherited = {name: here for name, _ in a.installed + b.installed if (here := version_of(name))}
    return inherited | dict(a.installed), inherited | dict(b.installed)
