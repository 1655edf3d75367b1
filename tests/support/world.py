"""A world without processes: what ranks measure is a function of the changes that are new on their side."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.environments.environments import Environment
from perfsuite.errors import UsageError
from perfsuite.records.change import Change
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Verdict
from perfsuite.run.asked import Asked
from perfsuite.run.environment_changes import changes_since
from perfsuite.run.measuring import Measuring
from perfsuite.run.runner import Settings
from perfsuite.run.sides import Side, Sides
from perfsuite.run.trial import Trial

# Packages that are installed wherever these tests run.
OLD = {"python": "3.11.2", "msgspec": "0.1", "packaging": "1.0"}
NEW = {"python": "3.11.2", "msgspec": "0.2", "packaging": "2.0"}
BOTH = frozenset({"msgspec", "packaging"})
ENDINGS = {"dies": "failed", "too much": "oom"}
Readings = Callable[[frozenset[str]], Mapping[str, Reading | None]]  # where these changes are new


class Few(Catalog):
    """With the metrics of the samples alone."""

    def metrics(self, process: str) -> list[Metric]:
        return list(samples.METRICS)


@dataclass(frozen=True)
class Launched:
    """One launch: of which cell, with which changes new on its side, and whether for times alone."""

    cell: str
    new: frozenset[str]
    times_only: bool


@dataclass
class World:
    """``readings`` are those of every cell, or ``of_cell`` those of some. ``changed`` are the names of all changes.
    ``unbuildable`` says why sides with just these changes cannot be built. ``forced`` are packages that the older side
    has in addition. ``alone``: of two launches at once, one fails. ``launched`` are the launches so far, ``built`` the
    changes that each other side lacks, and ``servers`` the launches before each start of rank servers.
    """

    readings: Readings
    changed: Collection[str]
    of_cell: dict[str, Readings] = field(default_factory=dict)
    unbuildable: Mapping[frozenset[str], str] = field(default_factory=dict)
    forced: tuple[tuple[str, str], ...] = ()
    alone: bool = False
    launched: list[Launched] = field(default_factory=list)
    built: list[tuple[str, ...]] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)

    def put(self, patch: pytest.MonkeyPatch) -> "World":
        """Let questions launch here, and sides be built here."""
        world = self

        class RunnerHere:
            """A runner of one side."""

            def __init__(self, catalog: Catalog, settings: Settings, environment: Environment) -> None:
                self.settings = settings
                self.model_flop: dict[str, float] = {}
                self.new = frozenset(world.changed) - {name for name, _ in environment.overrides}
                world.servers.append(len(world.launched))

            def measure(self, cell: Cell, watch: Any, times_only: bool = False) -> Measurement:
                return world.launch(cell.id, self.new, times_only)

            def close(self) -> None:
                pass

        def in_turns(runners: Sequence[Any], cells: Sequence[Cell], *_: Any, **options: Any) -> list[Measurement]:
            pairs = zip(runners, cells, strict=True)
            both = [runner.measure(cell, None, times_only=options["times_only"]) for runner, cell in pairs]
            return [samples.measurement("failed"), both[1]] if world.alone else both

        def without(sides: Sides, changes: Sequence[Change]) -> Side:
            world.build(changes)
            overrides = tuple((change.name, "") for change in changes)
            forced = world.forced if changes else ()
            environment = Environment(overrides=overrides, installed=forced)
            return Side("here" if not changes else "older", sides.catalog, environment)

        patch.setattr("perfsuite.run.question.Runner", RunnerHere)
        patch.setattr("perfsuite.run.pairs.measure_in_turns", in_turns)
        patch.setattr(Sides, "_without", without)
        return self

    def build(self, changes: Sequence[Change]) -> None:
        """A side without these changes is built. Raises UsageError if it cannot be."""
        reverted = tuple(change.name for change in changes)
        if why := self.unbuildable.get(frozenset(self.changed) - {*reverted}):
            raise UsageError(why)
        self.built.append(reverted)

    def launch(self, cell: str, new: frozenset[str], times_only: bool = False) -> Measurement:
        """What the ranks of a launch measure."""
        self.launched.append(Launched(cell, new, times_only))
        readings = self.of_cell.get(cell, self.readings)(new)
        outcome = next((ENDINGS[name] for name in ENDINGS if name in readings), "fits")
        made = samples.measurement(outcome, **({} if outcome != "fits" else readings))
        made = msgspec.structs.replace(made, cell=cell, launches=[Launch(date="2026-11-25")])
        if not times_only or outcome != "fits":
            return made
        timed = {name: reading for name, reading in made.readings.items() if name.endswith("_seconds")}
        return msgspec.structs.replace(made, readings=timed, times_only=True)

    @property
    def counted(self) -> list[frozenset[str]]:
        """What was new in each launch for exact metrics."""
        return [launch.new for launch in self.launched if not launch.times_only]

    @property
    def timed(self) -> list[frozenset[str]]:
        """What was new in each launch for times."""
        return [launch.new for launch in self.launched if launch.times_only]


def measuring(folder: Path, catalog: Catalog | None = None, **options: Any) -> Measuring:
    """How cells are measured, with few metrics and steps; ``folder`` is no repository, so that no pair is kept."""
    return Measuring(catalog or Few(), Settings(steps=3), folder, **options)


def asked(
    world: World, versions: Mapping[str, str] = NEW, *, cell: str = samples.CELL, forced: bool = False, **flags: Any
) -> Asked:
    """What is asked of a cell that was recorded with the OLD versions, and has now run with these in that world."""
    readings = world.of_cell.get(cell, world.readings)(frozenset())
    old = samples.with_measurement(samples.baseline(**readings), versions=OLD, cell=cell)
    old = msgspec.structs.replace(old, cell=cell)
    new = msgspec.structs.replace(world.launch(cell, frozenset(world.changed)), versions=dict(versions))
    world.launched.pop()
    verdict = judge(new, old, samples.METRICS, strategy="zero3")
    changes = changes_since(old.measurement, new, None)
    return Asked(parse_cell(cell, Few()), new, old, verdict, changes, forced=forced, **flags)


def settled(trial: Trial, *cells: Asked) -> dict[str, Verdict]:
    """The verdicts of these cells after one trial."""
    return dict(trial.settle(list(cells)))


def more(size: int) -> dict[str, Reading | None]:
    """Readings with so many bytes more."""
    return {"peak_memory_bytes": samples.memory(20 * samples.GIB + size, activations=8 * samples.GIB)}


def seconds(step: float) -> dict[str, Reading | None]:
    """Readings with steps that take so long."""
    return {"step_time_seconds": samples.times(*[step] * 6)}


def memory_of(*guilty: str, together: bool = False) -> Readings:
    """Each of these changes costs memory, or only all of them together."""

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        count = len(new.intersection(guilty))
        return more((count == len(guilty)) * 4096 if together else count * 4096)

    return readings


def slower_with(*guilty: str, by: float = 1.2) -> Readings:
    """Each of these changes makes steps slower."""
    return lambda new: seconds(0.4 * by ** len(new.intersection(guilty)))


def status_of(verdict: Verdict, metric: str) -> str:
    """The status of the metric's line."""
    return next(line.status for line in verdict.lines if line.metric == metric)
