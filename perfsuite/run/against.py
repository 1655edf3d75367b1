"""``--perf-against=REF``: every cell is compared with another environment and needs no stored baseline.

REF is a git revision, releases (``transformers==5.22.0 torch==2.12.0``) or a file of constraints.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement

from perfsuite.baselines.accept import baseline_of
from perfsuite.catalog.cell import Cell
from perfsuite.compare.compare import Comparison
from perfsuite.compare.judge import OUTCOME, verdict_of
from perfsuite.compare.pooling import Effect
from perfsuite.environments.environments import pinned, with_releases
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.machine import version_of
from perfsuite.launch.places import THIS_MACHINE, Places
from perfsuite.records.change import CODE, Cause, Change, ChangeKind, Problem
from perfsuite.records.change import Trial as TrialReport
from perfsuite.records.deadline import OutOfTime
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status
from perfsuite.run.ab import REVISION, Experiment
from perfsuite.run.culprits import culprits
from perfsuite.run.environment_changes import revision
from perfsuite.run.grid import Grid, Progress
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial, requirements

MOST_BLAMED = 8  # cells that are tried again with each change alone


@dataclass
class Against:
    """Like a Gatekeeper, but compares cells with the environment in which ``changes`` are reverted, all together."""

    trial: Trial
    changes: Sequence[Change]
    tracer: Tracer | None = None
    places: Places = THIS_MACHINE
    tell: Callable[[Progress], None] = lambda progress: None
    grid: Grid | None = None
    _blamed: dict[tuple[str, tuple[str, ...]], list[Cause]] = field(default_factory=dict)

    def prepare(self, cells: Sequence[Cell], step_seconds: Mapping[str, float]) -> None:
        """Compare all cells of the run; ``step_seconds`` are hints by cell. Raises UsageError if the other environment
        cannot be built.
        """
        if releases := requirements(self.changes):
            with_releases(releases)
        turns = [cell for cell in cells if self.places.at(cell.hardware.nodes).takes_turns]
        store = KeptPairs.of(self.changes, self.trial.settings, self.trial.repository)
        self.grid = self._grid(turns, store, step_seconds=step_seconds)
        self.grid.run()

    def _grid(self, cells: Sequence[Cell], store: KeptPairs, kept: Sequence[Change] = (), **options: Any) -> Grid:
        """A grid trial of these cells, with only the ``kept`` changes, or all if there are none."""

        def make(cell: Cell) -> Experiment:
            return self.trial.experiment(cell, self.changes, kept)

        return Grid(make, cells, store, self.trial.watch, tell=self.tell, **options)

    def knows(self, cell: Cell) -> bool:
        """Whether the cell was compared already."""
        return self.grid is not None and self.grid.has(cell)

    def check(self, cell: Cell, faults: Sequence[str] = (), command: str = "") -> Result:
        """Judge the cell by its pairs and by those of all others. Raises UsageError if a side cannot be built, or on
        nodes that cannot take turns, and OutOfTime if it has no pair.
        """
        if not self.places.at(cell.hardware.nodes).takes_turns:
            raise UsageError("--perf-against takes turns on one machine, not on the nodes of a cluster.")
        grid = self.grid
        if grid is None or not grid.has(cell):
            if grid is not None and grid.unfinished:
                raise OutOfTime(grid.unfinished)
            grid = self._grid([cell], KeptPairs(None), faults=faults, share=1 / self.trial.cells)
            grid.run()
            if not grid.has(cell):
                raise OutOfTime(grid.unfinished)
        comparison = grid.comparison(cell)
        metrics = self.trial.catalog.metrics(cell.strategy.engine.process)
        baseline = baseline_of(comparison.a, "", metrics)
        verdict = comparison.verdict
        worse = [line.metric for line in verdict.lines if line.status == Status.REGRESSED]
        if verdict.lines:
            lines = [
                msgspec.structs.replace(line, status=Status.OK if line.status == Status.SAME else line.status)
                for line in verdict.lines
            ]
            verdict = verdict_of(comparison.b, baseline, lines, metrics, stale=False)
        elif verdict.status == Status.IMPROVED:  # the other environment cannot run it: nothing was compared
            verdict = msgspec.structs.replace(verdict, status=Status.UNHELD)
        elif verdict.status == Status.SAME:
            verdict = msgspec.structs.replace(verdict, status=Status.OK)
        elif verdict.status == Status.REGRESSED:
            worse = [OUTCOME]
        causes, problems = self._blame(cell, grid, worse, comparison, faults)
        report = TrialReport(
            against=list(self.changes), pairs=len(comparison.a.launches), causes=causes, problems=problems, whole=True
        )
        verdict = msgspec.structs.replace(verdict, changed=[], trial=report, accept=None)
        if self.tracer:
            with closing(Runner(self.trial.catalog, self.trial.settings)) as runner:
                verdict = self.tracer.attach(verdict, cell, runner, comparison.b, faults, self.trial, self.changes)
        return Result(measurement=comparison.b, baseline=baseline, verdict=verdict)

    def _blame(
        self, cell: Cell, grid: Grid, worse: Sequence[str], comparison: Comparison, faults: Sequence[str]
    ) -> tuple[list[Cause], list[Problem]]:
        """Which change made those metrics worse: a time with all cells that share it, any other of this cell alone."""
        causes: list[Cause] = []
        problems: list[Problem] = []
        try:
            for metric in worse:
                if metric in grid.pools and (effect := grid.effect(metric, cell.id)):
                    causes += self._causes_of(metric, effect, grid, faults)
            if others := [metric for metric in worse if metric not in grid.pools]:
                found, problems = self.trial.blame(cell, self.changes, others, comparison, faults)
                causes += found
        except OutOfTime as error:
            problems.append(Problem(message=str(error)))
        return causes, problems

    def _causes_of(self, metric: str, effect: Effect, grid: Grid, faults: Sequence[str]) -> list[Cause]:
        """The causes of what cells share, which some of them tell."""
        if (metric, effect.cells) not in self._blamed:
            cells = [cell for cell in grid.cells if cell.id in effect.cells][:MOST_BLAMED]

            def attempt(kept: Sequence[Change]) -> dict[str, bool | None]:
                some = self._grid(cells, KeptPairs(None), kept, step_seconds=grid.hints, faults=faults)
                some.run()
                statuses = {one.status for one in some.pools[metric].effects} if metric in some.pools else set()
                unknown = Status.UNDECIDED in statuses or not statuses
                return {metric: True if Status.REGRESSED in statuses else None if unknown else False}

            self._blamed[metric, effect.cells] = culprits(self.changes, [metric], attempt)
        return self._blamed[metric, effect.cells]

    def close(self) -> None:
        """Nothing to do: each cell has ended what it started."""


def changes_to(reference: str, repository: Path) -> list[Change]:
    """The changes to revert for this reference. Raises UsageError if it names nothing, or nothing that differs."""
    reference = reference.strip().removeprefix(REVISION)
    path = Path(reference)
    if path.is_file():
        releases = list(_releases(constraints(path)))
    elif "==" in reference or "://" in reference:
        texts = [reference] if " @ " in reference else reference.split()
        releases = list(_releases((pinned(text) for text in texts), all_here=True))
    else:
        return [Change(CODE, revision(reference, repository), "here", ChangeKind.CODE)]
    if not releases:
        raise UsageError(f"--perf-against={reference}: every release that it names is already installed here.")
    return releases


def _releases(requirements: Iterable[Requirement], all_here: bool = False) -> Iterator[Change]:
    """Those that differ from what is installed. A file of constraints may name packages that are not installed."""
    for requirement in requirements:
        here = version_of(requirement.name)
        if not here:
            if all_here:
                raise UsageError(f"--perf-against={requirement}: {requirement.name} is not installed here.")
        elif requirement.url:
            yield Change(requirement.name, requirement.url, here)
        elif not requirement.specifier.contains(here, prereleases=True):  # 2.13.0+cpu is 2.13.0
            version = next(part.version for part in requirement.specifier if part.operator == "==")
            yield Change(requirement.name, version, here)


def constraints(path: Path) -> Iterator[Requirement]:
    """The pins of a file of constraints that apply to this machine. Raises FileError for a line that is not a pin."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip("\\").strip()  # pip's comments, and its continued lines
        if re.match(r"-(r|c|-requirement|-constraint)\b", text):
            raise FileError(
                f"{path}:{number}: {text!r} refers to another file: give a file that lists the releases itself."
            )
        if not text or text.startswith("-"):
            continue
        try:
            requirement = pinned(text)
        except UsageError as error:
            raise FileError(f"{path}:{number}: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement
