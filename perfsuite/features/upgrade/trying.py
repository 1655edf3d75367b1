"""Runs the cells in the environments of an upgrade: with each release alone, and with all of them.

What was measured is kept in perfsuite's cache folder, by everything that it depends on, so a later run resumes. A cell
that failed is measured again, since the cause may be gone. The folder ``upgrades`` there may be deleted at any time.
"""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison
from perfsuite.compare.gather import LaunchFacts, failed
from perfsuite.compare.rounds import Round
from perfsuite.environments.environments import HERE, installed, with_releases
from perfsuite.errors import UsageError
from perfsuite.features.upgrade.effects import Kept, ReleaseEffect, effects_of
from perfsuite.launch.hardware_here import describe
from perfsuite.records import codec
from perfsuite.records.change import Change
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import Measurement
from perfsuite.run.environment_changes import own_code, requirement_of
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import A, B, Question
from perfsuite.run.runner import Runner, Settings, Watch
from perfsuite.run.sides import RUNNING, Side
from perfsuite.system.deadline import OutOfTime, check
from perfsuite.system.machine import version_of
from perfsuite.system.paths import PACKAGE, cache_folder, code_files, content_hash

FOLDER = "upgrades"  # in the cache


@dataclass(frozen=True)
class UpgradeTask:
    """What a Bench begins to do with these changes: it builds their environment, launches a cell, or launches a pair of
    each cell to compare times. ``cell`` is the ``number``-th of those that wait for it, from 1 on, ``of`` so many.
    """

    kind: Literal["environment", "launch", "times"]
    kept: Kept
    cell: str = ""
    number: int = 1
    of: int = 1


@dataclass
class UpgradeBench:
    """One upgrade: its environments, and what was measured in them. ``held`` are releases of both sides, ``here`` the
    installed releases of ``changes`` and ``held``.
    ``settings`` are those of exact metrics, ``timed`` those of times. With ``fresh``, nothing kept is read. The error
    rates of times are for ``run_size`` cells, ``tolerance`` is that of `ab`. ``begins`` hears of everything that takes
    long before it is done. ``launches`` counts what was not known.

    When a limit of time is used up, everything that is not known raises OutOfTime, and what is known is given.
    """

    catalog: Catalog
    changes: Sequence[Change]
    held: Mapping[str, str]
    here: Mapping[str, str]
    settings: Settings
    timed: Settings
    watch: Watch
    fresh: bool = False
    run_size: int = 1
    tolerance: float | None = None
    begins: Callable[[UpgradeTask], None] = lambda task: None
    launches: int = 0
    _sides: dict[Kept, Side | str] = field(default_factory=dict)
    _found: dict[tuple[Kept, str], Measurement] = field(default_factory=dict)
    _pairs: dict[tuple[Kept, str], Comparison] = field(default_factory=dict)
    _unfinished: str = ""  # why the last comparison of times has no more pairs

    def text(self, kept: Kept) -> str:
        """The side with these changes, the others reverted, as `perfsuite ab` takes it: ``here`` or releases."""
        return " ".join(self._requirements(kept)) or RUNNING

    def side(self, kept: Kept) -> Side | str:
        """Its environment, or the reason why there is none."""
        if kept not in self._sides:
            wanted = self._requirements(kept)
            try:
                if wanted:
                    self.begins(UpgradeTask("environment", kept))
                environment = with_releases(wanted) if wanted else HERE
                self._sides[kept] = Side(self.text(kept), self.catalog, environment)
            except UsageError as error:
                self._sides[kept] = str(error)
        return self._sides[kept]

    def brings(self, kept: Kept) -> list[Change]:
        """What else differs from the old side, or for the old side from what is installed; ``before`` is its release
        with these changes.
        """
        side, base = self.side(kept), self.side(())
        if isinstance(side, str) or isinstance(base, str):
            return []
        named = {*self.held, *(change.name for change in self.changes)}
        before = dict(base.environment.installed) if kept else {}
        after = dict(side.environment.installed)
        both = {
            name: (before.get(name) or version_of(name), after.get(name) or version_of(name)) for name in before | after
        }
        return [Change(name, new, old) for name, (old, new) in both.items() if new and old != new and name not in named]

    def breaks(self, kept: Kept) -> list[tuple[str, str]]:
        """Packages and their requirements that hold here and not with these changes."""
        side = self.side(kept)
        return [] if isinstance(side, str) else list(side.environment.unmet)

    def measure(self, kept: Kept, cells: Iterable[Cell]) -> None:
        """Measure the cells with these changes, unless that is known, with one rank server for all of them."""
        side = self.side(kept)
        waiting = [cell for cell in cells if (kept, cell.id) not in self._found]
        if isinstance(side, str):
            self._found.update({(kept, cell.id): self._no_environment(cell, side) for cell in waiting})
            return
        places = {cell.id: self._place(side, cell) for cell in waiting}
        known = {name: found for name, place in places.items() if (found := self._read(place))}
        self._found.update({(kept, name): found for name, found in known.items()})
        waiting = [cell for cell in waiting if cell.id not in known]
        with closing(Runner(self.catalog, self.settings, side.environment)) as runner:
            for number, cell in enumerate(waiting, 1):
                check()
                self.begins(UpgradeTask("launch", kept, cell.id, number, len(waiting)))
                found = self._found[kept, cell.id] = runner.measure(cell, self.watch)
                self.launches += 1
                if found.outcome != "failed":
                    codec.write(places[cell.id], found)

    def effects(self, kept: Kept, cell: Cell) -> list[ReleaseEffect]:
        """What these changes do to the cell in exact metrics, by one launch of each side."""
        for one in ((), kept):
            self.measure(one, [cell])
        side = Side(RUNNING, self.catalog)
        known = {(A, cell.id): self._found[(), cell.id], (B, cell.id): self._found[kept, cell.id]}
        question = Question(self._how(self.settings), side, side, [cell.id], known=known)
        return effects_of(question.exact(cell.id), self.catalog.metrics(cell.strategy.engine.process))

    def outcome(self, cell: Cell) -> Measurement:
        """The cell's measurement with none of the changes."""
        self.measure((), [cell])
        return self._found[(), cell.id]

    def times(self, kept: Kept, cell: Cell) -> list[ReleaseEffect]:
        """What they do to its times, or to all if one of the sides has no environment."""
        if any(isinstance(self.side(one), str) for one in ((), kept)):
            return self.effects(kept, cell)
        metrics = self.catalog.metrics(cell.strategy.engine.process)
        timed = {metric.name for metric in metrics if metric.is_time}
        found = self.pairs(kept, cell)
        return [effect for effect in effects_of(found, metrics) if effect.metric in timed]

    def pairs(self, kept: Kept, cell: Cell) -> Comparison:
        """The comparison by pairs of launches, with times."""
        self.compare_times(kept, [cell])
        if (kept, cell.id) not in self._pairs:
            raise OutOfTime(self._unfinished)
        return self._pairs[kept, cell.id]

    def has_times(self, kept: Kept, cell: Cell) -> bool:
        """Whether its times were compared."""
        return (kept, cell.id) in self._pairs

    def compare_times(self, kept: Kept, cells: Iterable[Cell]) -> None:
        """Compare the times of all these cells by pairs of launches, as one question, as far as time allows and unless
        it is known.
        """
        waiting = [cell.id for cell in cells if (kept, cell.id) not in self._pairs]
        a, b = self.side(()), self.side(kept)
        if not waiting or isinstance(a, str) or isinstance(b, str):
            return
        how = self._how(self.timed)
        store = KeptPairs.of([a.environment.python, b.environment.python, *waiting], how, lasting=True)
        if self.fresh:
            store.forget()

        def tell(progress: Round) -> None:
            self.begins(UpgradeTask("times", kept, of=progress.waiting))

        question = Question(how, a, b, waiting, store=store, tell=tell)
        question.compare_times()
        self._unfinished = question.unfinished
        self.launches += sum(map(len, question.pairs.values())) - question.known_pairs
        answered = [name for name in waiting if name in question.problems or question.pairs.get(name)]
        self._pairs |= {(kept, name): question.comparison(name) for name in answered}

    def _how(self, settings: Settings) -> Measuring:
        return Measuring(self.catalog, settings, Path.cwd(), self.watch, self.tolerance, self.run_size)

    def _requirements(self, kept: Kept) -> list[str]:
        return [requirement_of(name, release) for name, release in self._wanted(kept)]

    def _wanted(self, kept: Kept) -> list[tuple[str, str]]:
        """The releases of a side that differ from the installed ones."""
        changed = {change.name: change.after if change in kept else change.before for change in self.changes}
        chosen = {**changed, **self.held}
        return [(name, release) for name, release in chosen.items() if release != self.here[name]]

    def _no_environment(self, cell: Cell, reason: str) -> Measurement:
        failure = Failure(kind="raised", rank=None, message=f"no environment: {reason}")
        return failed(LaunchFacts(cell=cell.id, machine=describe(cell.hardware, self.catalog, [])), failure)

    def _place(self, side: Side, cell: Cell) -> Path:
        """The file for a measurement of the cell on one side."""
        own = own_code(cell, self.catalog, Path.cwd())
        how = dataclasses.replace(self.settings, import_path=())
        model = msgspec.json.encode(cell.model, order="deterministic").decode()
        parts = [cell.id, model, str(how), sys.version, *installed(), _content(str(PACKAGE)), side.environment.python]
        parts += map(_content, own)
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return cache_folder() / FOLDER / f"{cell.id}.{name}.json"

    def _read(self, path: Path) -> Measurement | None:
        """What is kept there, if it may be used."""
        return None if self.fresh else codec.read_kept(path, Measurement)


@functools.cache
def _content(place: str) -> str:
    """A hash of the code of a folder, or of one file."""
    return content_hash(code_files(Path(place)))
