"""The trial: tests in this run, on this machine, what a stored time or a changed metric only suggests.

    alarm → the baseline's environment and this one, launched in pairs with alternating steps → slower, the same, or
    undecided; if slower → each change alone, then all changes but one → the library that caused it

The baseline's environment is this one with the recorded releases, variables and code instead of those that differ;
uv builds it once and keeps it. If nothing has changed, there is nothing to try.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison
from perfsuite.compare.judge import COMMAND, OUTCOME, verdict_of
from perfsuite.compare.pool import own_code_since, runs_of
from perfsuite.environments.environments import HERE, with_releases
from perfsuite.environments.sides import side_with
from perfsuite.errors import PerfsuiteError
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.change import NONE, Cause, Change, ChangeKind, Problem
from perfsuite.records.change import Trial as TrialReport
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Because, Line, Status, Verdict, reason
from perfsuite.run.ab import PAIR_SECONDS, RUNNING, Experiment, Side, catalog_at, interleave_of
from perfsuite.run.culprits import Found, culprits
from perfsuite.run.environment_changes import changes_since, code_of, code_since, requirement_of
from perfsuite.run.runner import Settings, Watch

ONE_LAUNCH = 0  # pairs: one launch of each side suffices for metrics that repeat themselves exactly
SUSPECTED = (Status.ALARM, Status.MACHINE, Status.NOT_HELD)  # times that a trial decides
UNTRIABLE = (Status.FAILED, Status.MISSING)  # of a time that a side lacks, or that is no number
INNOCENT = (Status.SAME, Status.IMPROVED, Status.IMMATERIAL)


@dataclass(frozen=True)
class Announcement:
    """A trial that begins, or goes on with only the ``kept`` changes: it may take minutes. ``titles`` are the metrics
    that it is about, all if there are none. ``pair_seconds`` is what a pair of launches takes at least; None: each side
    is launched once.
    """

    cell: str
    against: Sequence[Change] = ()
    titles: Sequence[str] = ()
    pair_seconds: float | None = None
    kept: Sequence[Change] = ()


def unheard(announcement: Announcement) -> None:
    """A no-op announcement."""


@dataclass(frozen=True)
class Trial:
    """Runs the trials of cells. ``repository`` has the user's code, ``cells`` is the number of cells in the run.
    ``tell`` is called when a trial begins.
    """

    catalog: Catalog
    settings: Settings
    repository: Path
    watch: Watch
    tolerance: float | None = None
    cells: int = 1
    tell: Callable[[Announcement], None] = unheard

    def begin(
        self, cell: Cell, titles: Sequence[str], against: Sequence[Change], pairs: int | None, measured: float = 0.0
    ) -> None:
        """Announce a trial of these metrics, and how long it takes: ``measured`` are the seconds of a launch."""
        seconds = PAIR_SECONDS + measured if pairs is None else None
        self.tell(Announcement(cell.id, against, titles, seconds))

    def decide(
        self,
        cell: Cell,
        measurement: Measurement,
        baseline: Baseline,
        verdict: Verdict,
        faults: Sequence[str] = (),
        command: str = COMMAND,
        since: TimedRun | None = None,
    ) -> Verdict:
        """The verdict after the trial of its open lines. ``command`` collects the cell's test. ``since`` is the run of
        the other side's environment, by default the baseline's newest.
        """
        metrics = self.catalog.metrics(cell.strategy.engine.process)
        since = since or runs_of(baseline, metrics)[-1]
        changed = self.changed(cell, measurement, since)
        fixed = [change for change in changed if change.fixed]
        answer = _Answer(measurement, baseline, verdict, metrics, command, fixed)
        tried = [change for change in changed if not change.fixed]
        if not tried:
            return answer.untried(own_code_since(since, measurement))
        worse = [line.metric for line in verdict.lines if line.status == Status.REGRESSED]
        forced = not worse and all(line.status != Status.ALARM for line in verdict.lines)
        suspected = [
            line.metric
            for line in verdict.lines
            if line.metric in answer.timed and (forced or line.status in SUSPECTED)
        ]
        pairs = None if suspected else ONE_LAUNCH
        titles = {line.metric: line.title for line in verdict.lines}
        what = [titles[name] for name in dict.fromkeys([*suspected, *worse])]
        self.begin(cell, what, tried, pairs, measurement.wall_seconds)
        begin = time.monotonic()
        try:
            comparison = self.compare(cell, tried, [], pairs, measurement, faults)
        except PerfsuiteError as error:
            return answer.not_compared(Problem(message=str(error)))
        if not comparison.verdict.lines:
            return answer.not_compared(_problem(comparison))
        lines = {line.metric: line for line in comparison.verdict.lines}
        # Every time that the pairs compared counts, suspected or not: a trial ends with the first that is slower.
        compared = list(dict.fromkeys([*suspected, *(one.metric for one in comparison.times)]))
        convicted = [name for name in [*compared, *worse] if name in lines and lines[name].status == Status.REGRESSED]
        causes, problems = self.blame(cell, tried, convicted, comparison, faults) if convicted else ([], [])
        answer.report = TrialReport(
            against=tried,
            pairs=len(comparison.a.launches) if suspected else 0,
            seconds=time.monotonic() - begin,
            causes=causes,
            problems=problems,
            unmoved=[
                name for name in worse if name in lines and lines[name].status in (Status.SAME, Status.IMMATERIAL)
            ],
        )
        return answer.with_lines({name: lines[name] for name in compared if name in lines})

    def changed(self, cell: Cell, measurement: Measurement, since: TimedRun) -> list[Change]:
        """Every difference between the environment of a baseline's run and that of the measurement."""
        return changes_since(since, measurement, code_since(since, measurement, cell, self.catalog, self.repository))

    def compare(
        self,
        cell: Cell,
        reverted: Collection[Change],
        kept: Collection[Change],
        pairs: int | None,
        here: Measurement | None,
        faults: Sequence[str] = (),
        there: Measurement | None = None,
    ) -> Comparison:
        """A has all of these changes reverted. B has only the ``kept`` ones; it is this environment if there are none.

        ``pairs`` is the most pairs of launches, by default that of ab.py. ``here`` was measured in this environment,
        ``there`` in A: neither is launched again for ONE_LAUNCH. Raises UsageError if a side cannot be built.
        """
        experiment = self.experiment(cell, reverted, kept, pairs)
        step = here.readings.get("step_time_seconds") if here else None
        seconds, known = float(step.value) if step else None, (there, None if kept else here)
        return experiment.compare(experiment.cells[0], self.watch, seconds, ((), faults), known, one_sided=True)

    def experiment(
        self, cell: Cell, reverted: Collection[Change], kept: Collection[Change], pairs: int | None = None
    ) -> Experiment:
        """The A/B of those sides. Raises UsageError if one cannot be built."""
        a = self.side(cell, reverted)
        b = self.side(cell, [change for change in reverted if change not in kept] if kept else [])
        interleave = interleave_of([cell.hardware])
        options = {} if pairs is None else {"pairs": pairs}
        return Experiment(
            a, b, [cell.id], self.settings, self.tolerance, interleave=interleave, run_size=self.cells, **options
        )

    def side(self, cell: Cell, reverted: Collection[Change]) -> Side:
        """This environment with these changes reverted. Raises UsageError if it cannot be built."""
        if not reverted:
            return Side(RUNNING, self.catalog)
        name = ", ".join(f"{change.name} {change.before}" for change in reverted)
        releases = requirements(reverted)
        environment = with_releases(releases) if releases else HERE
        overrides = [
            (change.name, None if change.before == NONE else change.before)
            for change in reverted
            if change.kind == ChangeKind.VARIABLE
        ]
        environment = replace(environment, overrides=tuple(overrides))
        code = next((change for change in reverted if change.kind == ChangeKind.CODE), None)
        if code is None:
            return Side(name, self.catalog, environment)
        older, root, copy = side_with(code, self.repository)
        catalog = catalog_at(self.catalog, root, copy, code.before)
        # A cell without code of the user's own takes nothing from a revision, which is no error.
        theirs = copy if not code.contents and code_of(cell, self.catalog, root) else None
        there = replace(
            environment,
            path=older.path,
            overrides=(*older.overrides, *overrides),
            root=older.root,
            folder=older.folder,
        )
        return Side(name, catalog, there, copy=theirs)

    def blame(
        self,
        cell: Cell,
        changed: Sequence[Change],
        convicted: Sequence[str],
        comparison: Comparison,
        faults: Sequence[str] = (),
    ) -> tuple[list[Cause], list[Problem]]:
        """Which change made those metrics worse that the comparison found worse, and what could not be tried."""
        timed = {metric.name for metric in self.catalog.metrics(cell.strategy.engine.process) if metric.is_time}
        times = [name for name in convicted if name in timed]
        # Times have one cause: a comparison ends with the first time that it finds worse.
        groups = {name: [name] for name in convicted if name not in timed} | ({times[0]: times} if times else {})
        problems: list[Problem] = []

        def attempt(kept: Sequence[Change]) -> Found:
            self.tell(Announcement(cell.id, kept=kept))
            try:
                pairs = None if times else ONE_LAUNCH
                made = self.compare(cell, changed, kept, pairs, comparison.b, faults, comparison.a)
            except PerfsuiteError as error:
                problems.append(Problem(message=str(error), kept=list(kept)))
                return {}
            verdict = made.verdict
            if not verdict.lines and OUTCOME not in convicted:
                problems.append(msgspec.structs.replace(_problem(made), kept=list(kept)))
            slower = any(line.metric in timed and line.status == Status.REGRESSED for line in verdict.lines)
            return {name: (slower and names == times) or _is_worse(verdict, names) for name, names in groups.items()}

        causes = [
            msgspec.structs.replace(cause, metrics=[name for first in cause.metrics for name in groups[first]])
            for cause in culprits(changed, list(groups), attempt)
        ]
        return causes, problems


def _problem(comparison: Comparison) -> Problem:
    """Why the two sides of a trial could not be compared."""
    facts = comparison.verdict.reason.facts if comparison.verdict.reason else {}
    sides: dict[str, str] = {"A": comparison.a.outcome, "B": comparison.b.outcome}
    ended = {side: outcome for side, outcome in sides.items() if outcome != "fits"}
    return Problem(message=str(facts.get("message") or comparison.verdict.status), ended=ended)


def _is_worse(verdict: Verdict, metrics: Sequence[str]) -> bool | None:
    """Whether one of the metrics is worse; None if unknown."""
    if OUTCOME in metrics:
        known: dict[Status, bool | None] = {Status.REGRESSED: True, Status.FAILED: None}
        return known.get(verdict.status, False) if not verdict.lines else False
    statuses = {line.metric: line.status for line in verdict.lines}
    compared = [statuses.get(name) for name in metrics]
    if Status.REGRESSED in compared:
        return True
    return False if all(status in INNOCENT for status in compared) else None


def requirements(changes: Iterable[Change]) -> list[str]:
    """The releases to install to revert these changes."""
    return [requirement_of(change.name, change.before) for change in changes if change.kind == ChangeKind.RELEASE]


@dataclass
class _Answer:
    """A verdict during its trial. ``report`` is what the trial found, ``fixed`` the changes that it cannot try."""

    measurement: Measurement
    baseline: Baseline
    verdict: Verdict
    metrics: Sequence[Metric]
    command: str
    fixed: Sequence[Change]
    report: TrialReport = field(default_factory=TrialReport)

    @property
    def timed(self) -> set[str]:
        return {metric.name for metric in self.metrics if metric.is_time}

    def untried(self, own_code: Change | None) -> Verdict:
        """No difference can be reverted, that of perfsuite's own code included."""
        self.report = TrialReport(own_code=own_code)
        return self.with_lines({}, Status.UNDECIDED if self.fixed or own_code else Status.MACHINE)

    def not_compared(self, problem: Problem) -> Verdict:
        """The sides could not be compared."""
        self.report = TrialReport(problems=[problem])
        return self.with_lines({})

    def with_lines(self, tried: Mapping[str, Line], unanswered: Status = Status.UNDECIDED) -> Verdict:
        """The verdict with the lines from the trial, whose pairs say more about a time than stored ones do: what they
        did not decide is undecided, also where the stored times had suggested nothing. An alarm stays open if a change
        that was not tried may have caused it.
        """
        lines = []
        for line in self.verdict.lines:
            new = tried.get(line.metric)
            if new is not None and new.status != Status.NOT_HELD and line.status not in UNTRIABLE:
                decided = self._acquitted(line, new) if new.status in INNOCENT else new
                line = msgspec.structs.replace(decided, stored=line.change)
            elif line.status == Status.ALARM:
                line = msgspec.structs.replace(line, status=unanswered)
            lines.append(line)
        made = verdict_of(self.measurement, self.baseline, lines, self.metrics)
        report = msgspec.structs.replace(self.report, fixed=list(self.fixed))
        return msgspec.structs.replace(made, collect=self.command, changed=self.verdict.changed, trial=report)

    def _acquitted(self, line: Line, new: Line) -> Line:
        """The trial's line, of a time that it did not find slower."""
        if self.fixed and line.status == Status.ALARM:
            why = reason(Because.NOT_ALL_TRIED)
            return msgspec.structs.replace(new, status=Status.UNDECIDED, reason=why)
        return msgspec.structs.replace(new, status=Status.OK) if new.status == Status.SAME else new
